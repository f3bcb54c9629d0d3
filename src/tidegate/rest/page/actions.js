/* What can be done with the job; each says first what it will do. A batch can be cancelled alone. */

import { html, useState, useRef, useEffect } from './vendor/preact-htm/standalone.module.js';
import { post, patch, put, outcome } from './model.js';

const folder = { name: 'target-directory', label: 'Folder', hint: 'empty: the one of execution.checkpointing.savepoint-dir' };

const ACTIONS = {
  savepoint: {
    title: 'Take a savepoint',
    says: 'Writes all state to a folder, in the form that any later version reads and any parallelism restores. The job goes on meanwhile.',
    field: folder,
    act: async ({ job: { id } }, place) => {
      const { 'request-id': request } = await post(`jobs/${id}/savepoints`, { 'target-directory': place || undefined, 'cancel-job': false });
      return `Written: ${(await outcome(`jobs/${id}/savepoints/${request}`)).location}`;
    },
  },
  stop: {
    title: 'Stop with a savepoint',
    says: 'Sources stop, everything that was read goes through to the sinks and is committed, all state is written to a savepoint, and the job ends as FINISHED, without draining: windows and timers that have not fired stay in the savepoint. Nothing is lost: start it again from the savepoint.',
    field: folder,
    act: async ({ job: { id } }, place) => {
      const { 'request-id': request } = await post(`jobs/${id}/stop`, { targetDirectory: place || undefined, drain: false });
      return `The job has ended. Its savepoint: ${(await outcome(`jobs/${id}/savepoints/${request}`)).location}`;
    },
  },
  rescale: {
    title: 'Rescale',
    says: 'Takes a checkpoint, stops the tasks, redistributes keyed state, and goes on from there with more or fewer tasks. Steps that follow the parallelism of the job change together; those with one of their own keep it. Records in between wait for as long; none is lost or counted twice.',
    field: { label: 'New parallelism', hint: 'a whole number, 1 or more', number: true },
    act: async (picture, given) => {
      const wanted = Number(given);
      if (!Number.isInteger(wanted) || wanted < 1) throw new Error('The parallelism is a whole number, 1 or more.');
      await rescale(picture, wanted);
      return `The job goes on with a parallelism of ${wanted} as soon as there are slots for it.`;
    },
  },
  fork: {
    title: 'Fork',
    says: 'Starts a second job from the state that this one has now; this one goes on. The fork runs a program of yours, which may be a changed one, so it begins where that is. It must not write to where this job writes. What is written for it here is the fork\'s to delete once it runs, and yours if it never does.',
    field: { ...folder, label: 'Folder for its savepoint' },
    act: async ({ job: { id, name } }, place) => {
      const { 'request-id': request } = await post(`jobs/${id}/savepoints`, { 'target-directory': place || undefined, 'cancel-job': false });
      const { location } = await outcome(`jobs/${id}/savepoints/${request}`);
      return html`The fork's state is written. Start it with<br /><code>tidegate run --from ${quoted(location)} --claim-mode claim -D tidegate.fork.name=${quoted(`${name}-fork`)} PROGRAM.py</code>`;
    },
  },
  cancel: {
    title: 'Cancel the job',
    says: 'Ends the job at once. What came after the last checkpoint is read again by whoever starts from that; without checkpoints its state is gone.',
    of_batch: 'Ends the job at once. Nothing that its tasks have written is committed, and its state is gone: started again, it begins from its start.',
    danger: true,
    leave: 'Keep it running',
    act: async ({ job: { id } }) => {
      await patch(`jobs/${id}?mode=cancel`);
      return 'The job is being cancelled.';
    },
  },
};

/** Gives each step that follows the parallelism of the job another one. */
async function rescale({ job, vertices }, wanted) {
  const asked = Object.fromEntries(vertices.filter((each) => !each.fixed)
    .map((each) => [each.id, { parallelism: { lowerBound: 1, upperBound: wanted } }]));
  await put(`jobs/${job.id}/resource-requirements`, asked);
}

const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

const OVER = new Set(['FINISHED', 'CANCELED', 'FAILED', 'SUSPENDED']);

/** Buttons, and a dialog for each action. Outcomes are kept by action, and shown until somebody has seen them. */
export function Actions({ picture, lost }) {
  const { job } = picture;
  const dialog = useRef(null);
  const [name, choose] = useState('savepoint');
  const [opened, setOpened] = useState(false);
  const [place, setPlace] = useState('');
  const [outcomes, setOutcomes] = useState({});
  const action = ACTIONS[name];
  const { busy, done, trouble } = outcomes[name] ?? {};
  const tell = (of, one) => setOutcomes((all) => ({ ...all, [of]: one }));
  const open = (chosen) => { choose(chosen); setPlace(''); setOpened(true); };
  // Opened once its content is there, so that the first field or button has the focus.
  useEffect(() => { if (opened) dialog.current.showModal(); }, [opened]);
  const closed = () => { setOpened(false); if (!busy) tell(name, undefined); };
  const act = async (event) => {
    event.preventDefault();
    tell(name, { busy: true });
    try {
      tell(name, { done: await action.act(picture, place.trim()) });
    } catch (error) {
      tell(name, { trouble: error.message });
    }
  };
  const off = lost || OVER.has(job.state);
  const unseen = Object.entries(outcomes).filter(([of, one]) => one && !one.busy && !(opened && of === name));
  return html`
    ${!job.left && html`<div class="actions">${Object.entries(ACTIONS).filter(([, { of_batch }]) => !job.batch || of_batch).map(([each, { title, danger }]) => html`
      <button key=${each} class=${danger ? 'danger' : ''} disabled=${off && !outcomes[each]?.busy} onClick=${() => open(each)}>${title}</button>`)}
    </div>`}
    ${unseen.map(([of, one]) => html`
      <p key=${of} class=${`outcome ${one.done ? 'done' : 'trouble'}`} role=${one.done ? 'status' : 'alert'}>
        <b>${ACTIONS[of].title}</b>: ${one.done ?? one.trouble} <button onClick=${() => tell(of, undefined)}>Close</button>
      </p>`)}
    <dialog ref=${dialog} aria-labelledby="action" onClose=${closed}>
      <form onSubmit=${act}>
        <h2 id="action">${action.title}</h2>
        <p>${job.batch ? action.of_batch : action.says}</p>
        ${action.field && html`<label>${action.field.label} <input value=${place} inputmode=${action.field.number ? 'numeric' : undefined} onInput=${(event) => setPlace(event.target.value)} placeholder=${action.field.hint} /></label>`}
        ${busy && html`<p role="status">Under way …</p>`}
        ${done && html`<p class="done" role="status">${done}</p>`}
        ${trouble && html`<p class="trouble" role="alert">${trouble}</p>`}
        <p class="choices">
          <button type="button" onClick=${() => dialog.current.close()}>${busy ? 'Close (continues in the background)' : done ? 'Close' : action.leave ?? 'Cancel'}</button>
          ${!done && html`<button class=${action.danger ? 'danger' : 'main'} disabled=${busy || off}>${action.title}</button>`}
        </p>
      </form>
    </dialog>`;
}
