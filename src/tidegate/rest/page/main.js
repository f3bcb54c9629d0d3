/* The page: which job is shown, which of its views, and when it is asked about. */

import { html, render, useState, useEffect, useRef, useErrorBoundary } from './vendor/preact-htm/standalone.module.js';
import { ask, Watched, Unreachable, pause, POLL_MS, duration, clock, moment, whole } from './model.js';
import { Jobs, State } from './jobs.js';
import { Overview } from './overview.js';
import { Checkpoints } from './checkpoints.js';
import { Flames } from './flames.js';
import { Failures } from './failures.js';
import { Logs } from './logs.js';
import { Metrics } from './metrics.js';
import { Settings } from './settings.js';
import { HeldState } from './state.js';
import { Actions } from './actions.js';

const VIEWS = {
  overview: ['Overview', Overview],
  checkpoints: ['Checkpoints', Checkpoints],
  state: ['State', HeldState],
  time: ['Flame graph', Flames],
  metrics: ['User metrics', Metrics],
  failures: ['Failures', Failures],
  log: ['Log', Logs],
  settings: ['Settings', Settings],
};

const place = () => {
  const [, id = '', view = 'overview'] = location.hash.slice(1).split('/');
  return { id, view: view in VIEWS ? view : 'overview' };
};

function App() {
  const [at, go] = useState(place());
  const [many, setMany] = useState(false);
  useEffect(() => { ask('config').then((told) => setMany(told['many-jobs']), () => {}); }, []);
  useEffect(() => {
    const moved = () => go(place());
    addEventListener('hashchange', moved);
    return () => removeEventListener('hashchange', moved);
  }, []);
  return at.id ? html`<${Job} key=${at.id} id=${at.id} view=${at.view} many=${many} />` : html`<${Jobs} />`;
}

function Job({ id, view, many }) {
  const watched = useRef(null);
  if (watched.current === null) watched.current = new Watched(id);
  const [shown, setShown] = useState({ picture: null, trouble: '', lost: false });
  useEffect(() => watch(watched.current, setShown), [id]);
  const { picture, trouble, lost } = shown;
  const [, View] = VIEWS[view];
  useEffect(() => {
    if (picture) document.title = `${picture.job.name} · ${VIEWS[view][0]}`;
  }, [picture?.job.name, view]);
  useEffect(() => { document.querySelector('nav [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' }); }, [picture === null, view]);
  if (picture === null) {
    return html`<main>${trouble
      ? html`<p class="trouble" role="alert">${trouble}</p><p><a href="#/">All jobs</a></p>`
      : html`<p class="empty" role="status">Loading the job …</p>`}</main>`;
  }
  const { job } = picture;
  return html`
    <header class="top">
      <div class="who">
        ${many && html`<a class="back" href="#/">← All jobs</a>`}
        <h1>${job.name}</h1>
        <${State} state=${job.state} />
        <p class="since">
          ${duration((job.ended ?? job.now) - job.began)}${job.restarts > 0 && html`, ${times(job.restarts, 'restart')}`}${job.rescales > 0 && html`, ${times(job.rescales, 'rescale')}`}, epoch ${job.epoch}, ${job.tasks ? tasks_of(job.tasks) : `${job.slots} of ${job.slots_wanted} slots`}
        </p>
      </div>
      <${Actions} picture=${picture} lost=${lost} />
      <nav aria-label="Views of the job">
        ${Object.entries(VIEWS).map(([name, [title]]) => html`
          <a key=${name} href=${`#/${id}/${name}`} aria-current=${name === view ? 'page' : undefined}>
            ${title}${name === 'failures' && picture.failures.length > 0 ? html` <b class="count">${picture.failures.length}</b>` : ''}
          </a>`)}
      </nav>
    </header>
    <main>
      ${trouble && html`<p class="trouble" role="alert">${trouble} Figures recorded at ${clock(job.now)}.</p>`}
      ${job.left && html`<p class=${job.trouble ? 'trouble' : 'faint'} role="status">${job.trouble || 'The job has ended.'} ${job.trouble ? `Figures recorded at ${moment(job.now)}.` : 'You see its last recorded state.'}</p>`}
      <${Waits} waits=${picture.waits} findings=${picture.findings} />
      <${Guarded} key=${view} picture=${picture} view=${html`<${View} watched=${watched.current} picture=${picture} />`} />
    </main>`;
}

/** A view; one that cannot be drawn leaves the others usable, and is drawn again with the next picture. */
function Guarded({ view, picture }) {
  const [error, again] = useErrorBoundary();
  useEffect(() => { if (error) again(); }, [picture]);
  return error ? html`<p class="trouble" role="alert">This view cannot be shown: ${error.message}</p>` : view;
}

/** Asks for pictures until the page is left; a hidden page asks less often. */
function watch(watched, setShown) {
  let on = true;
  (async () => {
    while (on) {
      try {
        const since = watched.checkpoints.filter((each) => each.status === 'IN_PROGRESS')
          .map((each) => each.id)[0] ?? (watched.checkpoints.at(-1)?.id ?? 0) + 1;
        const picture = await ask(`jobs/${watched.id}/picture?checkpoints=${since}`);
        watched.take(picture);
        if (on) setShown({ picture, trouble: '', lost: false });
      } catch (error) {
        if (on) setShown((shown) => ({ ...shown, trouble: error.message, lost: error instanceof Unreachable }));
      }
      await pause(document.hidden || watched.picture?.job.left ? 10 * POLL_MS : POLL_MS);
    }
  })();
  return () => { on = false; };
}

/** Calls that last, a stop that waits: what keeps the job from going on, in words. */
function Waits({ waits, findings }) {
  const remedy = findings.find((each) => each.subject === 'call')?.remedy;
  const told = [
    ...waits.calls.map((call) => html`<li><b>${call.task}</b> has been in one call of <code>${call.function}</code> for ${duration(call.duration)}.${remedy && html` <span class="faint">${remedy}</span>`}
      <details><summary>Where it is</summary><pre>${call.stack.join('\n')}</pre></details></li>`),
    ...waits.guests.map((guest) => html`<li><b>${guest.task}</b> runs in the slot of another task until one of its own has come.</li>`),
  ];
  if (waits.stop) {
    const { savepoint, duration: ms, 'waits-for': those } = waits.stop;
    told.push(html`<li>The job is to end with a savepoint, asked for ${duration(ms)} ago${savepoint && html`, which is complete: <code>${savepoint}</code>`}.
      ${those.length > 0 && ` It waits for ${those.map((each) => each.task).join(', ')}.`}</li>`);
  }
  return told.length > 0 && html`<section class="waits" aria-label="What is waited for"><ul>${told}</ul></section>`;
}

/** How far a batch is. */
const tasks_of = ({ done, of, running, again }) => `${whole(done)} of ${times(of, 'task')} done, ${running} running${again ? `, ${again} run again` : ''}`;

const times = (count, what) => `${count} ${what}${count === 1 ? '' : 's'}`;

const root = document.getElementById('app');
root.textContent = '';
render(html`<${App} />`, root);
