// Light or dark: as the system has it, or as somebody chose. Not a module, so that it runs before anything is drawn.

(() => {
  const THEMES = ["auto", "light", "dark"];

  // Where storage is forbidden the choice lasts as long as the page.
  function kept(name) {
    try {
      if (name !== undefined) localStorage.setItem("tidegate-theme", name);
      return localStorage.getItem("tidegate-theme");
    } catch {
      return name ?? null;
    }
  }

  let chosen = THEMES.includes(kept()) ? kept() : "auto";
  const apply = () => (chosen === "auto" ? delete document.documentElement.dataset.theme : (document.documentElement.dataset.theme = chosen));
  apply();

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const say = () => {
      button.textContent = chosen;
      button.ariaLabel = `Colours: ${chosen === "auto" ? "as the system has them" : chosen}`;
    };
    say();
    button.addEventListener("click", () => {
      chosen = THEMES[(THEMES.indexOf(chosen) + 1) % THEMES.length];
      kept(chosen);
      apply();
      say();
    });
  });
})();
