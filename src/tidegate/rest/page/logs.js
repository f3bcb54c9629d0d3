/* What driver, slots and functions log, as it comes: chosen by level, step, task and text. */

import { html, useState, useEffect, useRef } from './vendor/preact-htm/standalone.module.js';
import { ask, pause, POLL_MS, moment } from './model.js';

const KEPT = 1000;
const TYPED_MS = 300;
const LEVELS = { debug: 'all', info: 'info', warning: 'warnings', error: 'errors' };
const START = { records: [], trouble: '', whole: false };

export function Logs({ watched, picture }) {
  const { left } = picture.job;
  const [level, setLevel] = useState('debug');
  const [operator, setOperator] = useState('');
  const [subtask, setSubtask] = useState('');
  const [text, setText] = useState('');
  const [held, hold] = useState(false);
  const [shown, show] = useState(START);
  const end = useRef(null);
  const query = new URLSearchParams({ level, limit: KEPT });
  for (const [name, value] of Object.entries({ operator, subtask, text })) if (value) query.set(name, value);
  const path = `jobs/${watched.id}/log?${query}`;
  useEffect(() => { show(START); hold(false); }, [path]);
  useEffect(() => (held ? undefined : follow(path, show, left)), [path, held, left]);
  useEffect(() => { if (!held && end.current) end.current.scrollTop = end.current.scrollHeight; }, [shown.records, held]);
  const names = [...new Set(picture.vertices.flatMap((each) => each.operators.map((one) => one.name)))];
  const tasks = Math.max(...picture.vertices.map((each) => each.parallelism), 0);
  const { records, trouble, whole } = shown;
  // Who scrolls up wants to read; at the end again it goes on.
  const scrolled = ({ target }) => hold(target.scrollHeight - target.scrollTop - target.clientHeight > 40);
  return html`
    <section class="panel">
      <div class="picks">
        <label>Level <select value=${level} onChange=${(event) => setLevel(event.target.value)}>
          ${Object.entries(LEVELS).map(([name, told]) => html`<option key=${name} value=${name}>${told}</option>`)}</select></label>
        <label>Step <select value=${operator} onChange=${(event) => setOperator(event.target.value)}><option value="">all</option>
          ${names.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label>
        <label>Task <select value=${subtask} onChange=${(event) => setSubtask(event.target.value)}><option value="">all</option>
          ${Array.from({ length: tasks }, (_, index) => html`<option key=${index} value=${String(index)}>${index + 1}</option>`)}</select></label>
        <${Text} set=${setText} />
        <button aria-pressed=${held} disabled=${!records.length} onClick=${() => hold(!held)}>Pause</button>
      </div>
      ${trouble && html`<p class="trouble" role="alert">${trouble}</p>`}
      ${!records.length && !trouble && html`<p class="empty" role="status">${whole ? 'Nothing of the kind has been logged.' : 'Reading the log …'}</p>`}
      ${records.length > 0 && html`
        <div class="log" ref=${end} role="log" aria-live="off" aria-label="Log of the job" tabindex="0" onScroll=${scrolled}>
          ${records.map((record) => html`<${Line} key=${record.key} record=${record} />`)}
        </div>
        <p class="faint">${records.length === KEPT ? `The newest ${KEPT} records. ` : ''}${left ? '' : 'The driver keeps more; '}<code>tidegate logs</code> and <a href=${`jobs/${watched.id}/log?format=text`}>this address</a> have them as text.</p>`}
      ${left && html`<p class="faint">A job leaves its newest records, at most 1 MiB of them. With <code>tidegate.log.file</code> it keeps all in a file.</p>`}
    </section>`;
}

/** A field whose text counts once typing has paused. */
function Text({ set }) {
  const timer = useRef(0);
  const typed = ({ target }) => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => set(target.value.trim()), TYPED_MS);
  };
  useEffect(() => () => clearTimeout(timer.current), []);
  return html`<label>Text <input type="search" onInput=${typed} /></label>`;
}

function Line({ record }) {
  const place = record.operator ?? record.task;
  const where = place && (record.subtask === null ? place : `${place} (${record.subtask + 1})`);
  return html`<div class=${`record ${record.level.toLowerCase()}`}>
    <time>${moment(record.timestamp)}</time> <b>${record.level.toLowerCase()}</b> <i>${where ?? (record.slot ? 'slot' : 'driver')}</i> <span title=${record.slot ?? 'driver'}>${record.logger}</span>
    <pre>${record.message}${record.exception ? `\n${record.exception}` : ''}</pre>
  </div>`;
}

/** Asks for what has come since, until it is left; once for a job that is over. */
function follow(path, show, left) {
  let on = true;
  let after = null;
  let count = 0;
  (async () => {
    for (; on; await pause(POLL_MS)) {
      if (document.hidden && after !== null) continue;
      try {
        const page = await ask(after === null ? path : `${path}&after=${after}`);
        if (!on) return;
        const came = page.records.map((record) => ({ ...record, key: `${after}-${count++}` }));
        const first = after === null;
        after = page.after;
        if (came.length || first) show(({ records }) => ({ records: [...(first ? [] : records), ...came].slice(-KEPT), trouble: '', whole: true }));
        else show((shown) => (shown.trouble ? { ...shown, trouble: '' } : shown));
      } catch (error) {
        if (on) show((shown) => ({ ...shown, trouble: error.message }));
      }
      if (left) return;
    }
  })();
  return () => { on = false; };
}
