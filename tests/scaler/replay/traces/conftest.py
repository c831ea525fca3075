import pytest

from scaler.replay.traces import BadLoad, load


@pytest.fixture
def write(tmp_path):
    """`write("a.csv", text or bytes)`: the path of a file, as a person would write it."""

    def generated(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return generated


@pytest.fixture
def rows():
    """`rows(words, seed=0)`: a load as a list of (second, prompt, output), seconds to the microsecond."""

    def read(words, **more):
        one = load(words, **more).load
        return [
            (round(float(at), 6), int(prompt), int(output))
            for at, prompt, output in zip(one.at, one.prompt, one.output, strict=True)
        ]

    return read


@pytest.fixture
def refusal():
    """`refusal(words)`: what is said of a load that is none."""

    def said(words, **more):
        with pytest.raises(BadLoad) as error:
            load(words, **more)
        return str(error.value)

    return said
