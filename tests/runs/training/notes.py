"""A tracker that notes what it is told, and a run that is soon over."""

SMALL = ["epochs=3", "model=logistic", "batch_size=512"]
BY_EPOCH = "tracker_curves=false"


class Notes:
    """A tracker that notes what it is told, and fails at one of its duties."""

    def __init__(self, fails_at=None):
        self.calls, self.fails_at, self.kept = [], fails_at, set()

    def _note(self, duty, *told):
        self.calls.append((duty, *told))
        if duty == self.fails_at:
            raise OSError("no luck\nand more")

    def start(self, about):
        self._note("start", about)
        return self

    def has(self, about):
        return about.digest in self.kept

    def log(self, step, numbers):
        self._note("log", step, numbers)

    def figure(self, name, png, points):
        self._note("figure", name, png and png[:4], list(points))

    def finish(self, record):
        self._note("finish", record)

    def table(self, name, files, folder):
        self._note("table", name, files)

    def duties(self):
        return [duty for duty, *_ in self.calls]
