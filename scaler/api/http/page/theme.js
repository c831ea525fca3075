// Light or dark: the setting of the system, or the user's choice. Not a module, so that it runs before the first paint.

(() => {
  const THEMES = ["auto", "light", "dark"];

  // Without storage the choice lasts as long as the page.
  function stored(name) {
    try {
      if (name !== undefined) localStorage.setItem("tidegate-theme", name);
      return localStorage.getItem("tidegate-theme");
    } catch {
      return name ?? null;
    }
  }

  let chosen = THEMES.includes(stored()) ? stored() : "auto";
  const apply = () => (chosen === "auto" ? delete document.documentElement.dataset.theme : (document.documentElement.dataset.theme = chosen));
  apply();

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const say = () => {
      button.textContent = chosen;
      button.ariaLabel = `Colours: ${chosen}`;
    };
    say();
    button.addEventListener("click", () => {
      chosen = THEMES[(THEMES.indexOf(chosen) + 1) % THEMES.length];
      stored(chosen);
      apply();
      say();
    });
  });
})();
