/* The graph with its rates, and the tasks behind each step. */

import { html, useState, useMemo, useRef, useEffect } from './vendor/preact-htm/standalone.module.js';
import * as dagre from './vendor/dagre/dagre.esm.js';
import { Chart } from './chart.js';
import { Promises } from './promises.js';
import { compact, whole, percent, duration, clock, state_of, watermark_of } from './model.js';

const WIDTH = 250;
const HEIGHT = 112;

export function Overview({ watched, picture }) {
  const [chosen, choose] = useState(null);
  const vertex = picture.vertices.find((each) => each.id === chosen);
  const close = () => { document.querySelector('.step.chosen')?.focus(); choose(null); };
  // Calls that last stand above every view already, with their stack.
  const found = picture.findings.filter((each) => each.subject !== 'call' || !picture.waits.calls.length);
  return html`
    ${found.length > 0 && html`
      <section class="findings" aria-label="What is slow or in trouble">
        ${found.map((each) => html`<article key=${each.subject + each.what}><h2>${each.subject}</h2><p>${each.what}</p><p class="faint">${each.remedy}</p></article>`)}
      </section>`}
    <section aria-label="Graph of the job"><${Graph} watched=${watched} picture=${picture} chosen=${chosen} choose=${choose} /></section>
    ${vertex && html`<${Tasks} vertex=${vertex} now=${picture.job.now} close=${close} />`}
    ${!picture.job.left && html`<section class="panel">
      <h2>Records a second</h2>
      <${Chart} times=${watched.times} series=${[
        { label: 'read by sources', values: watched.charts.read, colour: '--read' },
        { label: 'reached sinks', values: watched.charts.written, colour: '--written' },
      ]} />
    </section>`}
    <${Promises} picture=${picture} />`;
}

function Graph({ watched, picture, chosen, choose }) {
  const shape = JSON.stringify([picture.vertices.map((each) => each.id), picture.edges]);
  const place = useRef(null);
  const [room, setRoom] = useState(innerWidth);
  useEffect(() => {
    const sized = new ResizeObserver(() => setRoom(place.current.clientWidth));
    sized.observe(place.current);
    return () => sized.disconnect();
  }, []);
  const across = useMemo(() => laid_out(picture, 'LR'), [shape]);
  const fits = across.graph().width <= room;
  const layout = useMemo(() => (fits ? across : laid_out(picture, 'TB')), [across, fits]);
  const { width, height } = layout.graph();
  return html`
    <div class="graph" ref=${place}>
      <svg viewBox=${`0 0 ${width} ${height}`} width=${width} height=${height} role="group" aria-label="Steps and what flows between them">
        <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" class="arrowhead" /></marker></defs>
        ${picture.edges.map((edge, index) => html`<${Flow} key=${`edge ${index}`} edge=${edge} points=${layout.edge(edge.from, edge.to, String(index)).points} rates=${watched.of(edge.from)} down=${!fits} />`)}
        ${picture.vertices.map((vertex) => html`
          <${Step} key=${vertex.id} vertex=${vertex} at=${layout.node(vertex.id)} rates=${watched.of(vertex.id)} fed=${picture.edges.some((edge) => edge.to === vertex.id)}
            now=${picture.job.now} in_turn=${Boolean(picture.job.tasks)} chosen=${vertex.id === chosen} choose=${() => choose(vertex.id === chosen ? null : vertex.id)} />`)}
      </svg>
    </div>`;
}

/** Positions, from left to right; from top to bottom where that is too wide for the page. */
function laid_out(picture, direction) {
  const graph = new dagre.Graph({ multigraph: true });
  graph.setGraph({ rankdir: direction, nodesep: 24, ranksep: direction === 'LR' ? 156 : 44, marginx: 6, marginy: 6 });
  for (const vertex of picture.vertices) graph.setNode(vertex.id, { width: WIDTH, height: HEIGHT });
  picture.edges.forEach((edge, index) => graph.setEdge(edge.from, edge.to, {}, String(index)));
  dagre.layout(graph);
  return graph;
}

function Flow({ edge, points, rates, down }) {
  const path = points.map(({ x, y }, index) => `${index ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}`).join('');
  const middle = points[Math.floor(points.length / 2)];
  const level = !rates ? '' : rates.blocked > 0.5 ? 'high' : rates.blocked > 0.1 ? 'low' : '';
  const told = level ? `backpressured ${percent(rates.blocked)}` : edge.how.toLowerCase();
  return html`
    <g class=${`flow ${level}`}>
      <path d=${path} marker-end="url(#arrow)" />
      <text x=${middle.x} y=${middle.y + (down ? 4 : -6)} dx=${down ? 8 : 0} text-anchor=${down ? 'start' : 'middle'}>${told}</text>
    </g>`;
}

function Step({ vertex, at, rates, fed, now, in_turn, chosen, choose }) {
  const state = state_of(vertex, in_turn);
  const done = done_of(vertex);
  const waits = in_turn && (state === 'CREATED' || state === 'SCHEDULED');
  const watermark = watermark_of(vertex);
  const left = at.x - WIDTH / 2;
  const top = at.y - HEIGHT / 2;
  const [busy, blocked] = rates ? [rates.busy, rates.blocked] : [0, 0];
  const bar = WIDTH - 24;
  const total = (figure) => compact(vertex.subtasks.reduce((sum, each) => sum + each[figure], 0));
  const flow = (into, out, each) => `${fed ? `${into}${each} in, ` : ''}${out}${each} out`;
  const flows = rates ? flow(compact(rates.in), compact(rates.out), '/s')
    : state === 'FINISHED' || done > 0 ? flow(total('rows_in'), total('rows_out'), '') : waits ? 'not begun' : 'no rates yet';
  const working = rates ? `${percent(busy)} busy${uneven(vertex, busy)}` : '';
  const time = in_turn ? `${whole(done)} of ${whole(vertex.parallelism)} ${vertex.parallelism === 1 ? 'task' : 'tasks'} done` : watermark === null ? 'no event time' : `event time ${lag(watermark, now)}`;
  const spoken = `${vertex.name}, ${vertex.parallelism} ${vertex.parallelism === 1 ? 'task' : 'tasks'}, ${state.toLowerCase()}, ${flows}, ${working}, ${percent(blocked)} backpressured, ${time}`;
  return html`
    <g class=${`step ${waits ? 'waits' : state.toLowerCase()}${chosen ? ' chosen' : ''}`} transform=${`translate(${left} ${top})`} role="button" tabindex="0"
      aria-pressed=${chosen} aria-label=${spoken} onClick=${choose}
      onKeyDown=${(event) => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); choose(); } }}>
      <title>${vertex.operators.map((each) => each.name).join(' → ')}</title>
      <rect class="box" width=${WIDTH} height=${HEIGHT} rx="8" />
      <text class="name" x="12" y="24">${shortened(vertex.name, 26)}</text>
      <text class="side" x=${WIDTH - 12} y="24" text-anchor="end">× ${vertex.parallelism}</text>
      <text x="12" y="46">${flows}</text>
      <text x="12" y="66" class="faint">${time}</text>
      <g transform="translate(12 78)">
        <rect class="idle" width=${bar} height="8" rx="4" />
        <rect class="busy" width=${bar * (in_turn ? done / vertex.parallelism : busy)} height="8" rx="4" />
        ${!in_turn && html`<rect class="held" x=${bar * busy} width=${bar * Math.min(blocked, 1 - busy)} height="8" rx="4" />`}
      </g>
      <text x="12" y="102" class="faint">${working}</text>
      <text x=${WIDTH - 12} y="102" text-anchor="end" class="faint">${blocked > 0.005 ? `${percent(blocked)} backpressured` : ''}</text>
    </g>`;
}

const done_of = ({ subtasks }) => subtasks.filter((each) => each.state === 'FINISHED').length;

/** The busiest task, where it works far more than the mean of its step. */
function uneven({ subtasks }, mean) {
  const busiest = subtasks.reduce((most, each) => (each.busy > most.busy ? each : most));
  return busiest.busy > 0.1 && busiest.busy > 1.5 * mean ? `, task ${busiest.index + 1} ${percent(busiest.busy)}` : '';
}

/** How far event time is behind the clock; data of another time say which. */
function lag(watermark, now) {
  if (watermark === 'end') return 'at its end';
  const behind = now - watermark;
  if (behind >= 0 && behind < 86_400_000) return `${duration(behind)} behind`;
  const time = new Date(watermark);
  return Number.isNaN(time.valueOf()) ? `${watermark} ms` : `${time.toISOString().slice(0, 19).replace('T', ' ')} UTC`;
}

const shortened = (name, most) => (name.length <= most ? name : `${name.slice(0, most - 1)}…`);

function Tasks({ vertex, now, close }) {
  return html`
    <section class="panel" aria-labelledby="tasks">
      <h2 id="tasks">${vertex.name}</h2>
      <button class="close" onClick=${close} aria-label="Close the tasks of this step">×</button>
      ${vertex.stage && html`<p class="faint">Spark runs it as ${vertex.stage.page ? html`<a href=${vertex.stage.page}>stage ${vertex.stage.number}</a>` : `stage ${vertex.stage.number}`}.</p>`}
      <ul class="operators">${vertex.operators.map((each) => html`
        <li><b>${each.name}</b>${each.uid && html` <code>${each.uid}</code>`}
          ${each.functions.map((one) => html`<small>${one.call} ${one.by_row ? `runs ${one.each} by ${one.each}: ${one.by_row}` : 'runs vectorized, on whole columns'}</small>`)}
        </li>`)}
      </ul>
      <div class="scrolled"><table>
        <thead><tr>${['Task', 'State', 'Attempt', 'Records in', 'Records out', 'Records in/s', 'Records out/s', 'Busy', 'Backpressured', 'Event time', 'Slot'].map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
        <tbody>${vertex.subtasks.map((task) => {
          const known = task.state === 'RUNNING';
          return html`<tr key=${task.index}>
            <th scope="row">${task.index + 1}</th>
            <td><span class=${`state ${task.state.toLowerCase()}`}>${task.state.toLowerCase()}</span></td>
            <td>${task.attempt + 1}</td>
            <td>${whole(task.rows_in)}</td><td>${whole(task.rows_out)}</td>
            <td>${known ? compact(task.in_a_second) : ''}</td><td>${known ? compact(task.out_a_second) : ''}</td>
            <td>${known ? percent(task.busy) : ''}</td><td>${known ? percent(task.held) : ''}</td>
            <td>${task.watermark === null ? '' : lag(task.watermark, now)}</td>
            <td><small>${task.slot ?? 'none yet'}</small></td>
          </tr>`;
        })}</tbody>
      </table></div>
    </section>`;
}
