/* All jobs that a server answers for: those that run, and those that are over. */

import { html, useState, useEffect } from './vendor/preact-htm/standalone.module.js';
import { ask, pause, POLL_MS, duration, moment, recent } from './model.js';

const OVER = ['FINISHED', 'FAILED', 'CANCELED'];

/** Asks again and again; the server of a single job has nothing to list, and its job is shown. */
export function Jobs() {
  const [jobs, setJobs] = useState(null);
  const [trouble, setTrouble] = useState('');
  const [missing, setMissing] = useState([]);
  useEffect(() => {
    let on = true;
    (async () => {
      const many = (await ask('config').catch(() => ({})))['many-jobs'];
      for (; on; await pause(document.hidden ? 10 * POLL_MS : 2 * POLL_MS)) {
        try {
          const { jobs: found, troubles = [] } = await ask('jobs/overview');
          if (!on) return;
          setMissing(troubles);
          if (!many && found.length === 1) location.replace(`#/${found[0].jid}`);
          setJobs(found);
          setTrouble('');
        } catch (error) {
          if (on) setTrouble(error.message);
        }
      }
    })();
    return () => { on = false; };
  }, []);
  useEffect(() => { document.title = 'Jobs · Tidegate'; }, []);
  const over = jobs?.filter((job) => OVER.includes(job.state)) ?? [];
  const suspended = jobs?.filter((job) => job.state === 'SUSPENDED') ?? [];
  const running = jobs?.filter((job) => !over.includes(job) && !suspended.includes(job)) ?? [];
  return html`
    <header class="top"><h1>Jobs</h1></header>
    <main>
      ${trouble && html`<p class="trouble" role="alert">${trouble}</p>`}
      ${missing.map((each) => html`<p class="trouble" key=${each} role="status">Some jobs may be missing: ${each}</p>`)}
      ${jobs === null && !trouble && html`<p class="empty" role="status">Loading the jobs …</p>`}
      ${jobs !== null && html`<${List} title="Running" none="No running jobs." jobs=${running} />`}
      ${suspended.length > 0 && html`<${List} title="Suspended" jobs=${suspended} />`}
      ${over.length > 0 && html`<${List} title="Completed" jobs=${over} />`}
    </main>`;
}

function List({ title, none, jobs }) {
  return html`
    <section class="panel jobs" aria-label=${title}>
      <h2>${title} <small>${jobs.length}</small></h2>
      ${jobs.length === 0 && html`<p class="faint">${none}</p>`}
      ${jobs.length > 0 && html`
        <table class="cards">
          <thead><tr>${['Job', 'State', 'Start time', 'Duration', 'Tasks', 'Last checkpoint', 'Restarts'].map((head) => html`<th key=${head} scope="col">${head}</th>`)}</tr></thead>
          <tbody>${jobs.map((job) => html`<${Row} key=${job.jid} job=${job} />`)}</tbody>
        </table>`}
    </section>`;
}

function Row({ job }) {
  const checkpoint = job['last-checkpoint'];
  const { total, running, finished } = job.tasks;
  const tasks = OVER.includes(job.state) ? `${finished} of ${total} finished`
    : job.state === 'SUSPENDED' ? String(total) : `${running} of ${total} running`;
  return html`
    <tr>
      <td class="name"><a href=${`#/${job.jid}`}>${job.name}</a><small>${job.jid}</small>${job.trouble && html`<small class="bad">${job.trouble}</small>`}</td>
      <td><${State} state=${job.state} /></td>
      <td data-head="Start time">${job['start-time'] > 0 ? moment(job['start-time']) : '–'}</td>
      <td data-head="Duration">${duration(job.duration)}</td>
      <td data-head="Tasks">${tasks}</td>
      <td data-head="Last checkpoint">${checkpoint > 0 ? html`<span title=${moment(checkpoint)}>${recent(checkpoint)}</span>` : 'none'}</td>
      <td data-head="Restarts" class=${job.restarts > 0 ? 'bad' : ''}>${job.restarts}</td>
    </tr>`;
}

export const State = ({ state }) => html`<span class=${`state ${state.toLowerCase()}`}>${state.toLowerCase()}</span>`;
