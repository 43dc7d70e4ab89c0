"""The page's style sheet: light and dark, narrow and wide, screen and paper."""

# Colours of series, each with at least 3:1 against its background (text colours: 4.5:1).
LIGHT = {
    "paper": "#ffffff", "soft": "#f3f5f8", "line": "#d5dae1", "ink": "#16202c", "quiet": "#55606e",
    "good": "#0b6b3a", "bad": "#b3261e", "warn": "#8a5300", "link": "#0b5cad",
    "s0": "#0b62c4", "s1": "#c2410c", "s2": "#0f766e", "s3": "#8b2fd6",
    "s4": "#8f5c00", "s5": "#be185d", "s6": "#4d7c0f", "s7": "#475569",
}  # fmt: skip
DARK = {
    "paper": "#11161d", "soft": "#1a212b", "line": "#343e4b", "ink": "#e8edf3", "quiet": "#a7b2c0",
    "good": "#63d297", "bad": "#ff8a80", "warn": "#f2b84b", "link": "#7cb8ff",
    "s0": "#6cb2ff", "s1": "#ff9a62", "s2": "#4fd1c5", "s3": "#c8a2ff",
    "s4": "#e5c558", "s5": "#ff8ac0", "s6": "#a3d65c", "s7": "#a8b5c6",
}  # fmt: skip
SERIES = 8


def _variables(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in colours.items())


CSS = (
    f":root{{color-scheme:light dark;{_variables(LIGHT)}}}\n"
    f"@media (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}\n"
    f"@media print{{:root{{color-scheme:light;{_variables(LIGHT)}}}}}\n"
    """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
overflow-wrap:anywhere}
main,header,footer{max-width:70rem;margin:0 auto;padding:0 1.25rem}
header{padding-top:1.75rem}
.what{margin:0;color:var(--quiet);font-size:.875rem}
.what b{color:var(--ink);font-weight:600}
h1{font-size:clamp(1.45rem,1.1rem + 1.8vw,2.2rem);line-height:1.2;margin:.35rem 0 1rem;letter-spacing:-.015em;
text-wrap:balance}
h2{font-size:1.25rem;line-height:1.3;margin:2.75rem 0 .6rem;padding-top:.9rem;border-top:1px solid var(--line)}
h3{font-size:1rem;margin:1.6rem 0 .3rem}
p{margin:.4rem 0;max-width:46rem}
a{color:var(--link)}
.banner{background:var(--warn);color:var(--paper);font-weight:600;text-align:center;padding:.6rem 1.25rem}
.answer{font-size:1.125rem;max-width:50rem;margin:0 0 1rem}
.verdicts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,22rem),1fr));gap:.8rem;margin:1rem 0;
align-items:start;padding:0;list-style:none}
.verdicts>li{background:var(--soft);border:1px solid var(--line);border-left:5px solid var(--tone,var(--quiet));
border-radius:6px;padding:.8rem 1rem;min-width:0}
.verdicts p{margin:.25rem 0}
.verdicts ul{margin:.4rem 0 0;padding-left:1.1rem;font-size:.875rem;color:var(--quiet)}
.word{color:var(--tone,var(--ink));font-weight:700;text-transform:uppercase;letter-spacing:.04em;font-size:.8125rem}
.name{color:var(--quiet);font-size:.8125rem}
.good{--tone:var(--good)}.bad{--tone:var(--bad)}.warn{--tone:var(--warn)}
.marks{display:flex;flex-wrap:wrap;gap:.35rem 1.4rem;margin:1rem 0 0;font-size:.875rem}
.marks div{min-width:0}.marks dt{display:inline;color:var(--quiet)}.marks dt::after{content:" "}
.marks dd{display:inline;margin:0}
nav{margin:1.2rem 0 0;font-size:.875rem;display:flex;flex-wrap:wrap;gap:.3rem 1rem}
.wide{overflow-x:auto;margin:.7rem 0;border:1px solid var(--line);border-radius:6px}
.wide:focus-visible{outline:2px solid var(--link);outline-offset:2px}
table{border-collapse:collapse;width:100%;font-size:.875rem;overflow-wrap:normal;font-variant-numeric:tabular-nums}
caption{text-align:left;padding:.5rem .75rem;color:var(--quiet)}
th,td{padding:.4rem .6rem;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
thead th{background:var(--soft);font-weight:600;vertical-align:bottom}
tbody tr:last-child>*{border-bottom:0}
tbody th{font-weight:600}
.n{text-align:right}td.n,.s{white-space:nowrap}
td:not(.n,.s){min-width:14rem}
tr.bad td:last-child,tr.bad td.state{color:var(--bad);font-weight:600}
tr.good td.state{color:var(--good)}
.note{color:var(--quiet);font-size:.875rem}
figure{margin:1.4rem 0}
figcaption{font-weight:600}
.chart{width:100%;min-height:2rem;overflow:hidden;margin-top:.4rem}
.chart svg{display:block;max-width:100%;height:auto;overflow:visible}
.chart.vega-embed,.chart .vega-embed{width:100%}
details{margin:.5rem 0}
summary{cursor:pointer;color:var(--link);font-size:.875rem;padding:.2rem 0}
pre{background:var(--soft);border:1px solid var(--line);border-radius:6px;padding:.8rem 1rem;font-size:.875rem;
white-space:pre-wrap;overflow-wrap:anywhere}
code{font-family:ui-monospace,"SFMono-Regular",Menlo,Consolas,"Liberation Mono",monospace}
footer{margin-top:3rem;padding-top:1rem;padding-bottom:2.5rem;color:var(--quiet);font-size:.8125rem}
footer p{max-width:none}
#vg-tooltip-element{background:var(--soft)!important;color:var(--ink)!important;border:1px solid var(--line)!important;
font-family:inherit!important;box-shadow:none!important}
#vg-tooltip-element td.key{color:var(--quiet)!important}
@media (max-width:40rem){main,header,footer{padding-left:1rem;padding-right:1rem}th,td{padding:.35rem .5rem}
td:not(.n,.s){min-width:11rem}}
@media print{body{font-size:10pt}nav,summary{display:none}h2{margin-top:1.4rem}.wide{overflow:visible;border:0}
table{font-size:8pt}th,td{padding:.2rem .35rem}
figure,.verdicts>li,tr{break-inside:avoid}h2,h3,figcaption{break-after:avoid}
.banner{background:none;color:var(--ink);border:2px solid var(--ink)}}
"""
)
