"""What surrounds each page of the guide: the menu, the search, previous and next, how it all looks. No other file and no network is
needed but style.css and search.js, which are made from this file too."""

import html
import json

STYLE = """
:root { color-scheme: light dark; --text: #1f2328; --soft: #59636e; --line: #d1d9e0; --faint: #f3f5f7; --link: #0860ca; --mark: #fff3c4; --page: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6edf3; --soft: #9198a1; --line: #3a424b; --faint: #1a2028; --link: #6cb0ff; --mark: #4a3d10; --page: #0f141a; }
}
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { font: 16px/1.6 system-ui, -apple-system, "Segoe UI", sans-serif; color: var(--text); background: var(--page); margin: 0; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
.columns { display: grid; grid-template-columns: 17rem minmax(0, 1fr); max-width: 88rem; margin: 0 auto; }
nav { position: sticky; top: 0; height: 100vh; overflow-y: auto; padding: 1.2rem 1rem 2rem; font-size: 14.5px; line-height: 1.4;
  border-right: 1px solid var(--line); }
nav .home { font-weight: 650; font-size: 17px; color: inherit; }
nav h2 { font-size: 12px; text-transform: uppercase; letter-spacing: .05em; color: var(--soft); margin: 1.3rem 0 .3rem; border: 0; padding: 0; }
nav ul { list-style: none; margin: 0; padding: 0; }
nav li a { display: block; padding: .18rem .5rem; border-radius: 5px; color: inherit; }
nav li a:hover { background: var(--faint); text-decoration: none; }
nav a[aria-current] { background: var(--faint); font-weight: 600; color: var(--link); }
nav li ul { border-left: 1px solid var(--line); margin: .1rem 0 .3rem .6rem; font-size: 13.5px; } nav li ul a { color: var(--soft); }
nav summary { cursor: pointer; padding: .18rem .5rem; } nav details ul { margin-left: .6rem; }
#search { width: 100%; margin: .8rem 0 0; padding: .4rem .6rem; font: inherit; color: inherit; background: var(--faint); border: 1px solid var(--line);
  border-radius: 6px; }
#found a { overflow-wrap: anywhere; } #found small { color: var(--soft); display: block; } #found a.chosen { background: var(--faint); }
#menu, .bar { display: none; }
main { min-width: 0; max-width: 76rem; padding: 1.2rem 2.5rem 4rem; } main > p, main > ul, main > ol { max-width: 50rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: .4rem 0 1.2rem; }
h2 { font-size: 1.35rem; line-height: 1.25; margin: 2.6rem 0 .8rem; padding-bottom: .25rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1.1rem; line-height: 1.35; margin: 2.2rem 0 .6rem; overflow-wrap: anywhere; } h3 code { font-weight: 650; }
h1 code, h2 code, h3 code { font-size: .95em; background: none; padding: 0; }
code, pre { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 13.6px; } pre { font-size: 12.5px; }
code { background: var(--faint); border-radius: 4px; padding: .1em .2em; overflow-wrap: anywhere; }
pre { background: var(--faint); border: 1px solid var(--line); border-radius: 6px; padding: .75rem 1rem; overflow-x: auto; line-height: 1.45;
  tab-size: 2; }
pre code { background: none; padding: 0; font-size: inherit; overflow-wrap: normal; }
code a, pre a { color: inherit; border-bottom: 1px dotted var(--soft); } code a:hover, pre a:hover { color: var(--link); text-decoration: none; }
a code { color: inherit; }
.scroll { overflow-x: auto; margin: 1rem 0; }
.scroll, pre { --edge: var(--page); background: linear-gradient(to left, var(--edge) 1rem, transparent) right / 2.2rem 100% no-repeat local,
  linear-gradient(to left, #8886, transparent) right / .8rem 100% no-repeat var(--edge); } /* a shadow where it goes on to the right */
pre { --edge: var(--faint); }
thead:not(:has(th:not(:empty))) { display: none; }
table { border-collapse: collapse; min-width: 100%; font-size: 15px; line-height: 1.5; }
td, th { border: 1px solid var(--line); padding: .35rem .65rem; text-align: left; vertical-align: top; } th { background: var(--faint); }
td code { overflow-wrap: normal; }
td[align=right], th[align=right] { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.members td:first-child { width: 40%; } .members code { background: none; padding: 0; } .part td { background: var(--faint); }
img { max-width: 100%; height: auto; } main > p:has(> img) { max-width: none; margin-bottom: .4rem; }
p:has(> img) + p { color: var(--soft); font-size: 14.5px; } /* the caption */
.contract { color: var(--soft); font-size: 14px; border-left: 3px solid var(--line); padding-left: .7rem; }
.names { font-size: 14px; line-height: 1.9; }
:target { background: var(--mark); }
.turn { display: flex; justify-content: space-between; gap: 1rem; margin-top: 3.5rem; padding-top: 1rem; border-top: 1px solid var(--line); }
.turn a[rel=next] { text-align: right; margin-left: auto; } .turn small { display: block; color: var(--soft); }
.source { counter-reset: line; padding-left: 0; }
.source span { display: block; min-height: 1.45em; counter-increment: line; }
.source span::before { content: counter(line); display: inline-block; width: 3.2em; padding-right: 1em; text-align: right; color: var(--soft);
  user-select: none; }
@media (max-width: 800px) {
  html { scroll-padding-top: 3.6rem; }
  .columns { display: block; }
  .bar { display: flex; gap: .7rem; align-items: center; position: sticky; top: 0; z-index: 1; height: 3rem; padding: 0 1rem; cursor: pointer;
    background: var(--page); border-bottom: 1px solid var(--line); overflow: hidden; white-space: nowrap; }
  .bar b { font-weight: 600; overflow: hidden; text-overflow: ellipsis; }
  #menu { display: block; position: absolute; opacity: 0; } #menu:focus-visible ~ .bar { outline: 2px solid var(--link); outline-offset: -2px; }
  nav { display: none; position: fixed; inset: 3rem 0 0; height: auto; z-index: 1; border-right: 0; background: var(--page); font-size: 16px; }
  nav li a { padding: .4rem .5rem; }
  #menu:checked ~ .columns nav { display: block; }
  main { padding: .6rem 1rem 3rem; }
  h1 { font-size: 1.6rem; overflow-wrap: anywhere; }
  td, th { min-width: 5rem; } td:last-child:not([align=right]) { min-width: 12rem; }
  .members td:last-child:not([align]) { min-width: 9rem; }
}
@media print { nav, .bar, .turn { display: none; } .columns { display: block; } }
"""

SEARCH = """
(function () {
  var field = document.getElementById("search"), list = document.getElementById("found"), menu = document.getElementById("pages"), chosen = -1;
  field.hidden = false;
  function rank(entry, words) { // lower is better; -1: does not match
    var name = entry[0].toLowerCase(), total = 0;
    for (var i = 0; i < words.length; i++) {
      var at = name.indexOf(words[i]);
      if (at < 0) return -1;
      total += at === 0 ? 0 : /[a-z0-9]/.test(name[at - 1]) ? 2 : 1;
    }
    return total * 1000 + name.length;
  }
  function show() {
    var words = field.value.toLowerCase().split(/\\s+/).filter(Boolean), found = [];
    list.textContent = "", chosen = -1, menu.hidden = words.length > 0;
    if (!words.length) return;
    INDEX.forEach(function (entry) { var r = rank(entry, words); if (r >= 0) found.push([r, entry]); });
    found.sort(function (a, b) { return a[0] - b[0]; });
    found.slice(0, 25).forEach(function (pair) {
      var item = document.createElement("li"), link = document.createElement("a"), where = document.createElement("small");
      link.href = pair[1][1], link.textContent = pair[1][0], where.textContent = pair[1][2];
      link.appendChild(where), item.appendChild(link), list.appendChild(item);
    });
    if (!found.length) list.textContent = "nothing found";
  }
  function choose(by) {
    var links = list.getElementsByTagName("a");
    if (chosen >= 0) links[chosen].className = "";
    chosen = Math.max(0, Math.min(links.length - 1, chosen + by));
    if (links.length) links[chosen].className = "chosen", links[chosen].scrollIntoView({ block: "nearest" });
  }
  field.addEventListener("input", show);
  field.addEventListener("keydown", function (event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") choose(event.key === "ArrowDown" ? 1 : -1), event.preventDefault();
    if (event.key === "Escape") field.value = "", show();
    if (event.key === "Enter" && list.firstElementChild) list.getElementsByTagName("a")[Math.max(chosen, 0)].click();
  });
  document.addEventListener("keydown", function (event) {
    if (event.key === "/" && !/INPUT|TEXTAREA/.test(document.activeElement.tagName)) field.focus(), event.preventDefault();
  });
  document.querySelector("nav").addEventListener("click", function (event) { // on a phone the menu covers the page
    if (event.target.closest("a")) document.getElementById("menu").checked = false;
  });
  var nav = document.querySelector("nav"), here = nav.querySelector("a[aria-current]");
  if (here && here.offsetTop > nav.clientHeight - 100) nav.scrollTop = here.offsetTop - nav.clientHeight / 3;
  if (field.value) show(); // a browser that goes back keeps it
})();
"""


def search_script(entries):
    """`entries`: name, target, where that is."""
    return "var INDEX = [\n%s\n];\n%s" % (",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries), SEARCH.strip() + "\n")


class Frame:
    def __init__(self, brand, groups):
        """`groups`: a title and its entries (file name, label, folded) each; the folded ones are shown when one of them is the page."""
        self.brand, self.groups = brand, groups
        self.order = [("index.html", "The guide")] + [(name, label) for _, entries in groups for name, label, _ in entries]

    def entry(self, name, label, current, sections):
        here = ' aria-current="page"' if name == current else ""
        below = ""
        if here and sections:
            below = "<ul>%s</ul>" % "".join('<li><a href="#%s">%s</a></li>' % section for section in sections)
        return '<li><a href="%s"%s>%s</a>%s</li>' % (name, here, html.escape(label), below)

    def menu(self, current, sections):
        out = []
        for title, entries in self.groups:
            plain = "".join(self.entry(name, label, current, sections) for name, label, folded in entries if not folded)
            folded = [(name, label) for name, label, is_folded in entries if is_folded]
            if folded:
                inside = "".join(self.entry(name, label, current, sections) for name, label in folded)
                plain += "<li><details%s><summary>Headers</summary><ul>%s</ul></details></li>" % (
                    " open" if current in dict(folded) else "", inside)
            out.append("<h2>%s</h2><ul>%s</ul>" % (html.escape(title), plain))
        return "".join(out)

    def turn(self, current):
        """The links to the pages before and after it, in the order of the menu."""
        names = [name for name, _ in self.order]
        if current not in names:
            return ""
        at = names.index(current)
        out = ""
        for rel, word, place in (("prev", "Previous", at - 1), ("next", "Next", at + 1)):
            if 0 <= place < len(names):
                out += '<a rel="%s" href="%s"><small>%s</small>%s</a>' % (rel, names[place], word, html.escape(self.order[place][1]))
        return '<div class="turn">%s</div>' % out

    def whole(self, name, title, body, sections):
        return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
                '<title>{title} - cgr</title><link rel="stylesheet" href="style.css"></head><body>\n'
                '<input type="checkbox" id="menu" aria-label="Menu"><label for="menu" class="bar"><span>&#9776;</span><b>{title}</b></label>\n'
                '<div class="columns"><nav><a class="home" href="index.html">{brand}</a>'
                '<input type="search" id="search" placeholder="Search (/)" aria-label="Search" autocomplete="off" hidden><ul id="found"></ul>'
                '<div id="pages">{menu}</div></nav>\n<main>\n{body}\n{turn}</main></div>\n<script src="search.js"></script></body></html>\n').format(
                    title=html.escape(title), brand=html.escape(self.brand), menu=self.menu(name, sections), body=body,
                    turn=self.turn(name))
