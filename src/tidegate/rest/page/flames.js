/* Where the time of a step goes: its Python frames as a flame graph, and its hottest lines as a table. */

import { html, useState, useEffect, useRef } from './vendor/preact-htm/standalone.module.js';
import { ask, pause, percent, whole } from './model.js';

const EVERY_MS = 2000;
const LINES = 20;
const LEAST = 0.005;
const ROW = 20;
const KINDS = { on_cpu: 'On-CPU (working)', off_cpu: 'Off-CPU (waiting)', full: 'Mixed' };
const WHY_NONE = {
  '-1': 'This step has ended.',
  '-2': 'Flame graphs are switched off; rest.flamegraph.enabled switches them on.',
  '-3': 'Nothing has been found yet: looking …',
};

let drawing;
/** The library that draws, once somebody looks: builds that leave their names in the window. */
const library = () => drawing ??= Promise.all([
  import('./vendor/d3-selection/d3-selection.min.js'),
  import('./vendor/d3-flame-graph/d3-flamegraph.min.js'),
]).catch((error) => {
  drawing = undefined; // the next look tries again
  throw error;
});

export function Flames({ watched, picture }) {
  const { left } = picture.job;
  const [vertex, choose] = useState(busiest(watched, picture));
  const [kind, setKind] = useState('on_cpu');
  const [subtask, setSubtask] = useState('');
  const [held, hold] = useState(false);
  const [shown, show] = useState({ data: null, why: WHY_NONE['-3'], trouble: '' });
  const { subtasks } = picture.vertices.find((each) => each.id === vertex) ?? { subtasks: [] };
  const path = `jobs/${watched.id}/vertices/${vertex}/flamegraph?type=${kind}${subtask && `&subtaskindex=${subtask}`}`;
  useEffect(() => show({ data: null, why: WHY_NONE['-3'], trouble: '' }), [path]);
  useEffect(() => (held || left ? undefined : look(path, show)), [path, held, left]);
  const change = (set) => (event) => { set(event.target.value); hold(false); };
  const { data, why, trouble } = shown;
  return html`
    <section class="panel">
      <div class="picks">
        <label>Step <select value=${vertex} onChange=${(event) => { setSubtask(''); change(choose)(event); }}>
          ${picture.vertices.map((each) => html`<option key=${each.id} value=${each.id}>${each.name}</option>`)}</select></label>
        <label>Task <select value=${subtask} onChange=${change(setSubtask)}><option value="">all</option>
          ${subtasks.map((each) => html`<option key=${each.index} value=${String(each.index)}>${each.index + 1}</option>`)}</select></label>
        <label>Time <select value=${kind} onChange=${change(setKind)}>${Object.entries(KINDS).map(([name, told]) => html`<option key=${name} value=${name}>${told}</option>`)}</select></label>
        <button aria-pressed=${held} disabled=${!data} onClick=${() => hold(!held)}>Pause</button>
      </div>
      ${!left && trouble && html`<p class="trouble" role="alert">${trouble}</p>`}
      ${left && html`<p class="empty">The job has ended; flame graphs are of tasks that run.</p>`}
      ${!data && !trouble && !left && html`<p class="empty" role="status">${why}</p>`}
      ${data && html`
        <p class="faint">${whole(data.value)} samples of the last minute. Above each operator stand its functions, on top the lines that ran; a click looks closer.</p>
        <${Graph} key=${path} data=${data} held=${held} hold=${() => hold(true)} />
        <${Hottest} data=${data} />`}
    </section>`;
}

/** The step that works most; the first one while nothing is known. */
function busiest(watched, picture) {
  const busy = (id) => watched.of(id)?.busy ?? 0;
  return picture.vertices.map((each) => each.id).reduce((most, id) => (busy(id) > busy(most) ? id : most), picture.vertices[0]?.id);
}

/** Asks until it is left; slots look for as long as somebody asks. */
function look(path, show) {
  let on = true;
  (async () => {
    for (; on; await pause(EVERY_MS)) {
      if (document.hidden) continue;
      try {
        const { endTimestamp, data } = await ask(path);
        if (on) show({ data, why: WHY_NONE[endTimestamp] ?? '', trouble: '' });
      } catch (error) {
        if (on) show((shown) => ({ ...shown, trouble: error.message }));
      }
    }
  })();
  return () => { on = false; };
}

function Graph({ data, held, hold }) {
  const place = useRef(null);
  const chart = useRef(null);
  const newest = useRef(data);
  newest.current = data;
  const [trouble, tell] = useState('');
  useEffect(() => {
    let on = true;
    let sized;
    library().then(() => {
      if (!on) return;
      chart.current = window.flamegraph().width(place.current.clientWidth).cellHeight(ROW).minFrameSize(1)
        .transitionDuration(0).resetHeightOnZoom(true).setColorMapper(colour)
        .setLabelHandler(({ data: { name, value } }) => `${name}: ${percent(value / newest.current.value)}, ${whole(value)} samples`)
        .onClick(hold);
      window.d3.select(place.current).datum(newest.current).call(chart.current);
      sized = new ResizeObserver(() => chart.current.width(place.current.clientWidth).update());
      sized.observe(place.current);
    }).catch((error) => { if (on) tell(`The graph cannot be drawn: ${error.message} Open this view again to try once more.`); });
    return () => { on = false; sized?.disconnect(); };
  }, []);
  useEffect(() => { if (!held) chart.current?.update(data); }, [data, held]);
  return html`${trouble && html`<p class="trouble" role="alert">${trouble}</p>`}<div class="flames" ref=${place} role="img" aria-label="Flame graph; the table below tells the hottest lines."></div>`;
}

/** Operators in the colour of the page, frames in warm ones by their function. */
function colour({ depth, data: { name } }) {
  if (depth < 2) return depth ? '#8fc7d6' : '#c9d3d8';
  let sum = 0;
  for (const each of name.split(' (')[0]) sum = (sum * 31 + each.charCodeAt(0)) % 1000;
  return `hsl(${20 + sum % 35} 85% ${66 + sum % 11}%)`;
}

/** Lines by the time that is spent in themselves, not in what they call. */
function Hottest({ data }) {
  const lines = hottest(data).slice(0, LINES);
  return html`
    <h3>Hottest lines</h3>
    <div class="scrolled"><table>
      <thead><tr><th scope="col">Line</th><th scope="col">Operator</th><th scope="col">Self</th><th scope="col">Total</th></tr></thead>
      <tbody>${lines.map(({ name, operator, self, total }) => html`
        <tr key=${`${operator} ${name}`}><th scope="row"><code>${name}</code></th><td>${operator}</td><td>${percent(self / data.value)}</td><td>${percent(total / data.value)}</td></tr>`)}</tbody>
    </table></div>`;
}

function hottest(root) {
  const found = new Map();
  const walk = (node, operator, above) => {
    const key = `${operator} ${node.name}`;
    const one = found.get(key) ?? { name: node.name, operator, self: 0, total: 0 };
    found.set(key, one);
    one.self += node.value - node.children.reduce((sum, each) => sum + each.value, 0);
    if (!above.has(key)) one.total += node.value;
    for (const child of node.children) walk(child, operator, new Set(above).add(key));
  };
  for (const child of root.children) walk(child, child.name, new Set());
  return [...found.values()].filter((each) => each.self / root.value >= LEAST).sort((a, b) => b.self - a.self);
}
