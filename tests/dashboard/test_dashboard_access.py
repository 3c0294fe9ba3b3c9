"""The dashboard without a mouse, in the dark, and on a telephone."""

from typing import Literal

from api_node import RunningNode
from dashboard_browser import PATIENCE_MS, acquired
from playwright.sync_api import Page, expect

expect.set_options(timeout=PATIENCE_MS)

FOCUSED = """() => {
  const it = document.activeElement;
  const ring = getComputedStyle(it);
  return {
    name: it.textContent.trim() || it.labels?.[0]?.textContent || "",
    visible: ring.outlineStyle !== "none" && parseFloat(ring.outlineWidth) >= 2,
  };
}"""


def tabbed(page: Page, times: int) -> list[str]:
    """What is focused after each press of Tab; each must show that it is."""
    names = []
    for _ in range(times):
        page.keyboard.press("Tab")
        focused = page.evaluate(FOCUSED)
        assert focused["visible"], focused
        names.append(focused["name"])
    return names


def test_the_keyboard_reaches_everything_in_the_order_of_reading(page: Page, node: RunningNode) -> None:
    acquired(node.port, "keyboard/1")
    page.goto("/ui/")
    expect(page.get_by_role("link", name="keyboard/1")).to_be_visible()
    order = tabbed(page, 6)
    assert order[:2] == ["Skip to the content", "Tenure"]
    assert order[2].startswith("as the system") or order[2] == "Theme"
    assert order[3:] == ["Credential", "Keys that begin with", "keyboard/1"]
    page.keyboard.press("Enter")
    expect(page.locator("#lease-title")).to_be_focused()
    expect(page.get_by_role("button", name="Break …")).to_be_enabled()
    assert tabbed(page, 1) == ["Break …"]
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Break …")).to_be_focused()


def test_the_skip_link_leads_to_the_content(page: Page, node: RunningNode) -> None:
    page.goto("/ui/")
    expect(page.locator("#health")).to_contain_text("live")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    expect(page.locator("#overview")).to_be_visible()


def test_only_what_is_first_to_know_is_read_aloud(page: Page, node: RunningNode) -> None:
    page.goto("/ui/")
    expect(page.locator("#health")).to_contain_text("live")
    expect(page.get_by_role("status").first).to_have_text("The node serves")


def test_everything_that_is_operated_has_a_name(page: Page, node: RunningNode) -> None:
    page.goto("/ui/")
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("input, select, button, a, progress, dialog")].filter((it) => {
          const labelled = it.getAttribute("aria-labelledby");
          const text = it.getAttribute("aria-label") || it.labels?.[0]?.textContent
            || (labelled && document.getElementById(labelled)?.textContent) || it.textContent;
          return !text || !text.trim();
        }).map((it) => it.outerHTML)"""
    )
    assert nameless == []


CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const shade = (colour) => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const parts = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const ground = (it) => {
    for (; it; it = it.parentElement) {
      const colour = getComputedStyle(it).backgroundColor;
      if (colour !== "rgba(0, 0, 0, 0)") return colour;
    }
    return "white";
  };
  const faint = [];
  for (const it of document.querySelectorAll("body *")) {
    const bare = [...it.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
    if (!bare || !it.checkVisibility() || it.disabled) continue;
    const [a, b] = [shade(getComputedStyle(it).color), shade(ground(it))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) faint.push(`${it.tagName} ${it.textContent.slice(0, 30)}: ${contrast.toFixed(2)}`);
  }
  return { faint, page: getComputedStyle(document.body).backgroundColor };
}"""


def test_text_stands_out_in_the_light_and_in_the_dark(page: Page, node: RunningNode) -> None:
    acquired(node.port, "contrast/1")
    grounds = set()
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for scheme in schemes:
        page.emulate_media(color_scheme=scheme)
        for path in ("/ui/#/", "/ui/#/lease/contrast%2F1"):
            page.goto(path)
            expect(page.locator("#health")).to_contain_text("live")
            seen = page.evaluate(CONTRAST)
            assert seen["faint"] == []
            grounds.add(seen["page"])
    assert len(grounds) == 2, "the dark page is another one"


def test_the_switch_counts_for_more_than_the_system_and_is_remembered(page: Page, node: RunningNode) -> None:
    page.emulate_media(color_scheme="light")
    page.goto("/ui/")
    light = page.evaluate(CONTRAST)["page"]
    page.get_by_label("Theme").select_option("dark")
    dark = page.evaluate(CONTRAST)["page"]
    assert dark != light
    page.reload()
    assert page.evaluate(CONTRAST)["page"] == dark
    page.get_by_label("Theme").select_option("as the system")
    assert page.evaluate(CONTRAST)["page"] == light


WIDE = """() => [...document.querySelectorAll("body, body *")]
  .filter((it) => it.checkVisibility() && !it.closest("thead, .skip"))
  .filter((it) => it.getBoundingClientRect().right > innerWidth)
  .map((it) => `${it.tagName} ${it.className} ${it.textContent.slice(0, 30)}`)"""


def test_a_small_screen_needs_no_scrolling_sideways(page: Page, node: RunningNode) -> None:
    key = "small/" + "x" * 200
    acquired(node.port, key, owner="agent-with-a-rather-long-name-" + "y" * 60)
    page.set_viewport_size({"width": 320, "height": 640})
    for path in ("/ui/", f"/ui/#/lease/{key.replace('/', '%2F')}"):
        page.goto(path)
        expect(page.locator("#health")).to_contain_text("live")
        expect(page.get_by_text(key).locator("visible=true").first).to_be_visible()
        assert page.evaluate(WIDE) == []
