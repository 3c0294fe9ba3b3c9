"""The picture of a run: nodes and their offices, faults, and what was answered, over one axis of time. SVG
that needs nothing from outside."""

from collections.abc import Sequence
from html import escape
from typing import Final

from tenure_chaos.history import Fault
from tenure_chaos.live.analysis import Span, rates, role_spans, silences
from tenure_chaos.live.run import LiveReport

LEFT: Final = 120
WIDTH: Final = 1_060
LANE: Final = 22
GAP: Final = 6
RATES_HEIGHT: Final = 110
STEP_S: Final = 1.0
LABEL_PIXELS: Final = 6.2
"""About the width of a letter."""

ROLES: Final = ("leader", "follower", "candidate", "starting", "down")


class Drawing:
    """Collects shapes from top to bottom."""

    def __init__(self, seconds: float) -> None:
        self.seconds = max(seconds, 1.0)
        self.y = 0.0
        self.shapes: list[str] = []

    def x(self, at: float) -> float:
        return LEFT + WIDTH * min(max(at, 0.0), self.seconds) / self.seconds

    def label(self, text: str, *, y: float | None = None) -> None:
        at = self.y + LANE * 0.7 if y is None else y
        self.shapes.append(f'<text x="{LEFT - 8}" y="{at:.1f}" class="name">{escape(text)}</text>')

    def bar(self, span: Span, kind: str, title: str, *, text: str = "") -> None:
        left, right = self.x(span.began_at), self.x(span.ended_at)
        width = max(right - left, 1.5)
        self.shapes.append(
            f'<rect x="{left:.1f}" y="{self.y:.1f}" width="{width:.1f}" height="{LANE}" class="{kind}">'
            f"<title>{escape(title)}</title></rect>"
        )
        if text and len(text) * LABEL_PIXELS < width:
            place = f'x="{left + 4:.1f}" y="{self.y + LANE * 0.7:.1f}"'
            self.shapes.append(f'<text {place} class="on {kind}">{escape(text)}</text>')

    def next_lane(self) -> None:
        self.y += LANE + GAP

    def svg(self) -> str:
        height = self.y + 10
        body = "\n".join(self.shapes)
        return (
            f'<svg viewBox="0 0 {LEFT + WIDTH + 20} {height:.0f}" role="img" '
            f'aria-label="timeline of the run">\n{body}\n</svg>'
        )


def draw(report: LiveReport) -> str:
    """The whole picture."""
    history = report.history
    drawing = Drawing(history.duration_s)
    _axis(drawing, history.healed_at)
    quiet = silences(history)
    _nodes(drawing, report)
    _faults(drawing, history.faults, history.duration_s)
    drawing.label("no answer")
    for span in quiet:
        drawing.bar(span, "silence", f"no answer for {span.seconds:.1f} s, from {span.began_at:.1f} s")
    drawing.next_lane()
    _rates(drawing, report)
    return drawing.svg()


def _axis(drawing: Drawing, healed_at: float) -> None:
    step = next(step for step in (1, 2, 5, 10, 30, 60, 120, 300, 600, 3_600) if drawing.seconds / step <= 24)
    for number in range(int(drawing.seconds / step) + 1):
        x = drawing.x(number * step)
        drawing.shapes.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="16" y2="100%" class="grid"/>')
        drawing.shapes.append(f'<text x="{x:.1f}" y="11" class="tick">{number * step} s</text>')
    if healed_at < drawing.seconds:
        x = drawing.x(healed_at)
        drawing.shapes.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="16" y2="100%" class="healed">'
            f"<title>everything is mended at {healed_at:.1f} s</title></line>"
        )
    drawing.y = 24


def _nodes(drawing: Drawing, report: LiveReport) -> None:
    spans = role_spans(report.roles, report.downs, report.history.duration_s)
    for node, parts in spans.items():
        drawing.label(node)
        for span, role, term in parts:
            of_term = f" of term {term}" if term else ""
            title = f"{node}: {role}{of_term}, {span.began_at:.2f} to {span.ended_at:.2f} s"
            drawing.bar(span, role, title, text=f"term {term}" if role == "leader" else "")
        drawing.next_lane()


def _faults(drawing: Drawing, faults: Sequence[Fault], duration_s: float) -> None:
    """Each in the first lane that has room for it and its name."""
    lanes: list[list[tuple[Fault, bool]]] = []
    ends: list[float] = []
    for fault in faults:
        left, right = drawing.x(fault.began_at), drawing.x(min(fault.ended_at, duration_s))
        name = len(fault.name) * LABEL_PIXELS + 8
        fits = name < right - left
        end = right if fits else right + name
        free = [number for number, taken in enumerate(ends) if taken <= left]
        if free:
            lanes[free[0]].append((fault, fits))
            ends[free[0]] = end
        else:
            lanes.append([(fault, fits)])
            ends.append(end)
    for number, lane in enumerate(lanes):
        drawing.label("faults" if number == 0 else "")
        for fault, fits in lane:
            span = Span(fault.began_at, min(fault.ended_at, duration_s))
            title = f"{fault.name}: {fault.target}, {span.began_at:.2f} to {span.ended_at:.2f} s"
            drawing.bar(span, "fault", title, text=fault.name if fits else "")
            if not fits:
                place = f'x="{drawing.x(span.ended_at) + 4:.1f}" y="{drawing.y + LANE * 0.7:.1f}"'
                drawing.shapes.append(f"<text {place}>{escape(fault.name)}</text>")
        drawing.next_lane()


def _rates(drawing: Drawing, report: LiveReport) -> None:
    steps = rates(report.history, STEP_S)
    most = max((sum(step) for step in steps), default=0) or 1
    top = drawing.y
    drawing.label(f"calls per {STEP_S:.0f} s", y=top + 12)
    drawing.label(f"most: {most}", y=top + 28)
    for number, step in enumerate(steps):
        left, right = drawing.x(number * STEP_S), drawing.x((number + 1) * STEP_S)
        y = top + RATES_HEIGHT
        title = f"{number * STEP_S:.0f} s: {step[0]} ok, {step[1]} refused, {step[2]} without an answer"
        for kind, count in zip(("ok", "refused", "lost"), step, strict=True):
            height = RATES_HEIGHT * count / most
            y -= height
            if count:
                drawing.shapes.append(
                    f'<rect x="{left:.1f}" y="{y:.1f}" width="{max(right - left - 0.5, 0.5):.1f}" '
                    f'height="{height:.1f}" class="{kind}"><title>{title}</title></rect>'
                )
    drawing.y = top + RATES_HEIGHT + GAP
