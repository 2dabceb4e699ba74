"""The looks of the HTML pages: one style sheet, light and dark, screen, phone and paper."""

STYLE = """
:root{color-scheme:light dark;
--page:#fbfbfa;--card:#fff;--line:#e3e3df;--faint:#f1f1ee;--ink:#1b1d1f;--soft:#5a6066;
--accent:#1668a8;--fill:#7db2dc;--band:#d3e5f4;--warn:#8a5300;--warnfill:#e09a2b;--bad:#a8201a;--badfill:#d64540;
--good:#1d6b3c;--gap:#e9e9e5}
@media screen and (prefers-color-scheme:dark){:root{
--page:#121416;--card:#191c1f;--line:#2d3236;--faint:#22262a;--ink:#e8eaec;--soft:#a2aab1;
--accent:#6cb6f0;--fill:#33709f;--band:#223b50;--warn:#f0b357;--warnfill:#c98a26;--bad:#ff8d85;--badfill:#d9534c;
--good:#7fd3a0;--gap:#24282b}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1120px;margin:0 auto;padding:28px 24px 56px}
h1{font-size:13px;font-weight:600;letter-spacing:.02em;color:var(--soft);margin:0}
h2{font-size:17px;font-weight:650;margin:40px 0 12px}
h3{font-size:15px;font-weight:650;margin:0}
p{margin:0 0 8px}
.verdict{font-size:28px;line-height:1.25;font-weight:650;letter-spacing:-.015em;margin:10px 0 6px;
text-wrap:pretty}
.command{font-size:17px;font-weight:600;overflow-wrap:anywhere;margin:10px 0 4px}
.bad{color:var(--bad)}
.why{font-size:17px;line-height:1.45;margin:0 0 12px;max-width:60em;text-wrap:pretty}
.meta,.note{color:var(--soft);font-size:13.5px;overflow-wrap:anywhere}
.meta span:not(:last-child)::after{content:" \\b7\\20"}
.badge{display:inline-block;border:1px solid currentColor;border-radius:4px;padding:1px 8px;
font-size:12px;font-weight:700;letter-spacing:.06em;color:var(--warn);margin:10px 0 0}
.plot{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:14px 16px 10px}
.row{display:grid;grid-template-columns:168px minmax(0,1fr) 52px;column-gap:12px;
align-items:center;padding:3px 0}
.row>.name{font-size:13px;line-height:1.25;min-width:0}
.row>.name b{font-weight:600}
.row>.name small{display:block;color:var(--soft);font-size:11.5px;white-space:nowrap;
overflow:hidden;text-overflow:ellipsis}
.row>.end{font-size:14px;font-weight:600;text-align:right;font-variant-numeric:tabular-nums}
.row svg{display:block;width:100%;height:46px;background:var(--faint);border-radius:3px}
.row.lane{padding:1px 0}
.row.lane>.name{white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.row.lane svg{height:16px;background:none}
.row.axis{padding:0}
.ticks{position:relative;height:20px;font-size:11.5px;color:var(--soft);
font-variant-numeric:tabular-nums}
.ticks span{position:absolute;transform:translateX(-50%);white-space:nowrap;top:2px}
.ticks span::before{content:"";position:absolute;left:50%;top:-4px;height:4px;
border-left:1px solid var(--soft)}
.band{fill:var(--band)}.fill{fill:var(--fill)}
.mean{fill:none;stroke:var(--accent);stroke-width:1.5;vector-effect:non-scaling-stroke;
stroke-linejoin:round}
.grid{stroke:var(--line);stroke-width:1;vector-effect:non-scaling-stroke}
.gapfill{fill:var(--gap)}
.gapline{stroke:var(--soft);stroke-width:1;stroke-dasharray:2 3;vector-effect:non-scaling-stroke}
.span{fill:var(--warnfill)}.span.error{fill:var(--badfill)}.span.info{fill:var(--soft)}
.rail{stroke:var(--line);stroke-width:1;vector-effect:non-scaling-stroke}
.key{display:flex;flex-wrap:wrap;gap:4px 18px;color:var(--soft);font-size:12.5px;margin:10px 0 0}
.key i{display:inline-block;width:18px;height:10px;margin-right:6px;border-radius:2px}
.key .f{background:var(--fill);border-top:2px solid var(--accent)}
.key .b{background:var(--band);border:1px solid var(--line)}
.key .w{height:4px;background:var(--warnfill);vertical-align:middle;border-radius:0}
.key .g{background:var(--gap);border:1px dashed var(--soft)}
.small{display:grid;grid-template-columns:repeat(auto-fill,minmax(300px,1fr));gap:12px}
.small .plot{padding:12px 14px}
.small .row{grid-template-columns:78px minmax(0,1fr) 82px;column-gap:10px}
.small .row svg{height:28px}
.small .row>.name{font-size:12.5px;color:var(--soft)}
.small .row>.end{font-size:12.5px;font-weight:500;white-space:nowrap}
.small h3{margin:0 0 6px}
.finding{background:var(--card);border:1px solid var(--line);border-left:4px solid var(--warnfill);
border-radius:8px;padding:14px 18px;margin:0 0 12px;break-inside:avoid}
.finding.error{border-left-color:var(--badfill)}.finding.info{border-left-color:var(--soft)}
.finding header{display:flex;flex-wrap:wrap;gap:2px 12px;align-items:baseline}
.sev{font-size:12.5px;font-weight:650;color:var(--warn)}
.error .sev{color:var(--bad)}.info .sev{color:var(--soft)}
.finding .cost{margin-left:auto;font-weight:600;font-variant-numeric:tabular-nums}
.finding .when{color:var(--soft);font-size:13.5px;margin:2px 0 8px}
.finding .what{margin:0 0 8px;overflow-wrap:anywhere}
.finding dl{display:grid;grid-template-columns:68px minmax(0,1fr);gap:4px 12px;margin:0}
.finding dt{color:var(--soft);font-size:13.5px}
.finding dd{margin:0;overflow-wrap:anywhere}
.finding dd.do{font-weight:600}
.finding table{margin-top:2px}
.finding .scroll{border:0;background:none}
.finding td,.finding th{padding:3px 12px 3px 0;border:0;white-space:normal}
.finding td.t{min-width:14em}.finding thead th,.finding td:not(.t){white-space:nowrap}
.finding tbody th{min-width:9em;font-weight:500}
.scroll{overflow-x:auto;border:1px solid var(--line);border-radius:8px;background:var(--card)}
.scroll:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:6px 9px;white-space:nowrap;border-top:1px solid var(--line);
vertical-align:top}
thead th{border-top:0;color:var(--soft);font-weight:600;font-size:12.5px;vertical-align:bottom}
tbody th{font-weight:600}
.t{text-align:left}
td.c{text-align:left;max-width:34em;min-width:22em;white-space:normal;overflow-wrap:anywhere;
font:12.5px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
tfoot td,tfoot th{font-weight:650;border-top:1px solid var(--soft)}
.up{color:var(--good)}.down{color:var(--bad)}
.alert{border:1px solid var(--warnfill);border-radius:8px;background:var(--card);
padding:10px 16px;margin:16px 0 0}
footer{margin-top:40px;border-top:1px solid var(--line);padding-top:12px}
ul.plain{margin:10px 0 0;padding-left:18px;color:var(--soft);font-size:13.5px}
ul.plain li{overflow-wrap:anywhere}
@media(max-width:640px){
main{padding:18px 14px 40px}.verdict{font-size:22px}.why{font-size:15.5px}
.plot{padding:10px 12px 8px}
.row{grid-template-columns:minmax(0,1fr) auto;row-gap:1px;padding:4px 0}
.row>.name small{display:inline;margin-left:6px}
.row>.name{grid-column:1;grid-row:1}
.row>.end{grid-column:2;grid-row:1}
.row>.draw{grid-column:1/-1;grid-row:2}
.row svg{height:38px}
.row.axis>.draw{grid-row:1}
.row.axis>.name,.row.axis>.end{display:none}
.ticks span.odd{display:none}
.small{grid-template-columns:minmax(0,1fr)}
.small .row{grid-template-columns:70px minmax(0,1fr) 82px}
.small .row>.name,.small .row>.draw,.small .row>.end{grid-column:auto;grid-row:1}
.finding .cost{margin-left:0;width:100%}
.finding dl{grid-template-columns:minmax(0,1fr)}
.finding dd{margin-bottom:4px}
}
@media print{
:root{color-scheme:light;--page:#fff;--line:#ccc;--faint:#f4f4f2;--ink:#000;--soft:#444}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}
main{max-width:none;padding:0}.row,.finding,.small .plot,tr{break-inside:avoid}
h2{break-after:avoid;margin-top:24px}.scroll{overflow:visible}.row:not(.lane) svg{height:32px}
body{font-size:11pt}.verdict{font-size:20pt}.why{font-size:12pt}
table{font-size:8pt}thead th{font-size:7.5pt}td,th{padding:3px 5px}
td.c{min-width:16em;font-size:7pt}
tfoot{display:table-row-group}}
@page{margin:14mm}
"""
