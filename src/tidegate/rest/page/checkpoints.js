/* Checkpoints over time: how long each took, in which phase, and whose share came last. */

import { html, useState, useRef, useEffect } from './vendor/preact-htm/standalone.module.js';
import { bytes, duration, clock, moment } from './model.js';

const SHOWN = 60;
const HEIGHT = 160;
const PHASES = {
  start_delay: ['start delay (waiting for the barrier)', '--wait'],
  alignment: ['alignment (waiting for the other inputs)', '--align'],
  sync: ['sync phase (snapshotting state)', '--sync'],
  async: ['async phase (writing state)', '--write'],
  rest: ['completion (by the driver)', '--rest'],
};

export function Checkpoints({ watched, picture }) {
  const [chosen, choose] = useState(null);
  const { counts, interval, backlog } = picture.checkpoints;
  const shown = watched.checkpoints.slice(-SHOWN);
  const one = shown.find((each) => each.id === chosen) ?? shown.findLast((each) => each.status !== 'IN_PROGRESS');
  return html`
    <section class="figures" aria-label="Numbers of checkpoints">
      <p><b>${counts.completed}</b> completed</p><p><b>${counts.in_progress}</b> under way</p>
      <p class=${counts.failed ? 'bad' : ''}><b>${counts.failed}</b> failed</p>
      <p>${interval === null ? 'no periodic checkpoints' : html`every <b>${duration(interval)}</b>`}</p>
    </section>
    ${backlog && html`<p role="status">${backlog.sources.join(', ')} ${backlog.sources.length === 1 ? 'catches' : 'catch'} up with a backlog; meanwhile there is ${backlog.interval ? html`a checkpoint every <b>${duration(backlog.interval)}</b>` : 'no checkpoint'}.</p>`}
    ${shown.length === 0 && picture.job.batch && html`<p class="empty">A batch takes no checkpoints: ${picture.job.tasks ? 'Spark runs a task again that has died' : 'it begins again after a failure'}.</p>`}
    ${shown.length === 0 && !picture.job.batch && html`<p class="empty">There has been no checkpoint yet.${interval === null ? ' The job takes none: enable_checkpointing switches them on.' : ''}</p>`}
    ${shown.length > 0 && html`
      <section class="panel">
        <h2>End-to-end duration of the last ${shown.length} checkpoints, by the phases of the slowest subtask</h2>
        <${Timeline} shown=${shown} chosen=${one?.id} choose=${choose} />
        <ul class="legend">${Object.entries(PHASES).map(([name, [told, colour]]) => html`<li><i style=${{ background: `var(${colour})` }}></i>${told}</li>`)}</ul>
      </section>
      ${one && html`<${Details} one=${one} told=${chosen !== null} />`}`}`;
}

function Timeline({ shown, chosen, choose }) {
  const most = Math.max(...shown.map((each) => each.duration), 1);
  const step = 16;
  const width = Math.max(shown.length, 20) * step;
  const place = useRef(null);
  // Where there is little room, the newest are in sight.
  useEffect(() => { place.current.scrollLeft = place.current.scrollWidth; }, [shown.at(-1).id]);
  return html`
    <p class="scale">${duration(most)}</p>
    <div class="scrolled timeline" ref=${place}>
      <svg viewBox=${`0 0 ${width} ${HEIGHT + 16}`} width=${width} height=${HEIGHT + 16} role="group" aria-label="Durations of checkpoints, the oldest first">
        <line x1="0" y1="1" x2=${width} y2="1" class="rule" />
        ${shown.map((one, index) => html`
          <g key=${one.id} class=${`bar ${one.status.toLowerCase()}${one.id === chosen ? ' chosen' : ''}`} transform=${`translate(${index * step} 1)`} tabindex="0" role="button"
            aria-label=${`${name_of(one)}, ${one.status.toLowerCase()}, ${duration(Math.max(one.duration, 0))}${late(one)}`} aria-pressed=${one.id === chosen}
            onClick=${() => choose(one.id)} onKeyDown=${(event) => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); choose(one.id); } }}>
            <title>${name_of(one)}: ${duration(Math.max(one.duration, 0))}${late(one)}</title>
            <rect class="reach" width=${step - 2} height=${HEIGHT} />
            ${parts(one, (HEIGHT * Math.max(one.duration, 0)) / most).map(({ colour, from, to }) => html`<rect x="2" y=${HEIGHT - to} width=${step - 6} height=${Math.max(to - from, 0)} style=${{ fill: `var(${colour})` }} />`)}
            ${one.savepoint && html`<text x=${step / 2 - 1} y=${HEIGHT + 13} text-anchor="middle" class="faint">S</text>`}
          </g>`)}
      </svg>
    </div>`;
}

/** The phases of the latest share, stacked to the height of the whole checkpoint. */
function parts(one, height) {
  if (one.status === 'FAILED') return [{ colour: '--bad', from: 0, to: Math.max(height, 6) }];
  if (!one.latest) return [{ colour: '--rest', from: 0, to: Math.max(height, 2) }];
  const known = one.latest.start_delay + one.latest.alignment + one.latest.sync + one.latest.async;
  const whole = Math.max(one.duration, known, 1);
  const each = { ...one.latest, rest: whole - known };
  let from = 0;
  return Object.entries(PHASES).map(([name, [, colour]]) => {
    const to = from + (each[name] / whole) * Math.max(height, 2);
    const part = { colour, from, to };
    from = to;
    return part;
  });
}

const name_of = (one) => `${one.savepoint ? 'Savepoint' : 'Checkpoint'} ${one.id}`;

/** In words: which task came last, and what took it longest. */
function late(one) {
  if (!one.latest) return '';
  const [name] = Object.keys(PHASES).filter((each) => each !== 'rest').map((each) => [each, one.latest[each]]).sort((a, b) => b[1] - a[1])[0];
  return `; ${one.latest.task} came last: ${duration(one.latest[name])} ${PHASES[name][0]}`;
}

/** One checkpoint. told: whether a change is said aloud, as one that somebody asked for. */
function Details({ one, told }) {
  return html`
    <section class="panel" aria-live=${told ? 'polite' : 'off'}>
      <h2>${name_of(one)}</h2>
      <dl>
        <dt>State</dt><dd><span class=${`state ${one.status.toLowerCase()}`}>${one.status.toLowerCase().replace('_', ' ')}</span>${one.unaligned ? ' unaligned' : ''}</dd>
        <dt>Begun</dt><dd>${moment(one.begun)}</dd>
        ${one.duration >= 0 && html`<dt>Took</dt><dd>${duration(one.duration)}</dd>`}
        <dt>Tasks</dt><dd>${one.acknowledged} of ${one.tasks} acknowledged</dd>
        <dt>Size</dt><dd>${bytes(one.state_size)}, ${one.written < one.state_size ? `of which ${bytes(one.written)} newly written (incremental)` : 'all of it newly written'}</dd>
        ${one.path && html`<dt>Path</dt><dd><code>${one.path}</code></dd>`}
        ${one.latest && html`<dt>Last acknowledgement</dt><dd>${one.latest.task}: ${Object.keys(PHASES).filter((each) => each !== 'rest').map((each) => `${duration(one.latest[each])} ${PHASES[each][0]}`).join(', ')}</dd>`}
        ${one.waits_for?.length > 0 && html`<dt>Waits for</dt><dd>${one.waits_for.join(', ')}</dd>`}
        ${one.failure && html`<dt>Why it failed</dt><dd class="bad">${one.failure}</dd>`}
        ${one.remedy && html`<dt>What to do</dt><dd>${one.remedy}</dd>`}
      </dl>
    </section>`;
}
