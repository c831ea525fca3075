import pytest

from scaler.replay.traces import BadLoad, load


@pytest.fixture
def write(tmp_path):
    """`write("a.csv", text or bytes)`: writes a file and returns its path."""

    def generated(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return generated


@pytest.fixture
def rows():
    """`rows(text, seed=0)`: a load as a list of (second, prompt, output), seconds to the microsecond."""

    def read(text, **more):
        one = load(text, **more).load
        return [
            (round(float(at), 6), int(prompt), int(output))
            for at, prompt, output in zip(one.at, one.prompt, one.output, strict=True)
        ]

    return read


@pytest.fixture
def refusal():
    """`refusal(text)`: the error about an invalid load."""

    def error_of(text, **more):
        with pytest.raises(BadLoad) as error:
            load(text, **more)
        return str(error.value)

    return error_of
