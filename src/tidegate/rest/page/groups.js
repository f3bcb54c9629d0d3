/* State by name and key group: counted in the files of a checkpoint, when somebody asks. */

import { html, useState } from './vendor/preact-htm/standalone.module.js';
import { post, outcome, bytes, whole, percent, clock, growth } from './model.js';

const NOTHING = { busy: false, counted: null, trouble: '' };

export function KeyGroups({ watched, picture }) {
  const [{ busy, counted, trouble }, tell] = useState(NOTHING);
  const newest = watched.checkpoints.findLast((each) => each.status === 'COMPLETED' && !each.savepoint);
  const look = async () => {
    tell((shown) => ({ ...shown, busy: true, trouble: '' }));
    try {
      const at = `jobs/${watched.id}/state/key-groups`;
      const { 'request-id': request } = await post(at, {});
      tell({ busy: false, counted: await outcome(`${at}/${request}`), trouble: '' });
    } catch (error) {
      tell((shown) => ({ ...shown, busy: false, trouble: error.message }));
    }
  };
  return html`
    <section class="panel counted">
      <h2>By state and key group</h2>
      <p>${picture.job.left
        ? html`Counted while a job runs. Of one that is over, <code>tidegate inspect --key-groups</code> counts a checkpoint.`
        : `Reads the files of the newest checkpoint${newest ? `, now ${newest.id} with ${bytes(newest.state_size)}` : ''}, and of the one before it, and counts each state in them. That takes a while where there is much, on the machine of the driver; the tasks go on.`}</p>
      ${!picture.job.left && html`<p><button disabled=${busy || !newest} onClick=${look}>Analyze newest checkpoint</button></p>`}
      ${busy && html`<p role="status">Counting …</p>`}
      ${trouble && html`<p class="trouble" role="alert">${trouble}</p>`}
      ${counted && html`<${Counted} counted=${counted} />`}
    </section>`;
}

function Counted({ counted }) {
  const { operators, 'compared-with': older, 'one-key-group-in': oneIn } = counted;
  const states = operators.flatMap((operator) => operator.states.map((state) => ({ ...state, operator, id: `${operator.id} ${state.name}` })))
    .sort((a, b) => b.bytes - a.bytes);
  const unread = operators.filter((each) => each.unread);
  const keyed = states.filter((each) => each['key-groups']);
  const [chosen, choose] = useState(null);
  const one = keyed.find((each) => each.id === chosen) ?? keyed[0];
  const fastest = Math.max(...states.map((each) => each.grown_a_minute ?? 0));
  return html`
    <p class="faint">Checkpoint ${counted.checkpoint} of ${clock(counted.at)}: ${bytes(counted.bytes)}. ${older
      ? `Growth since checkpoint ${older.checkpoint} of ${clock(older.at)}.`
      : 'Growth is unknown: the previous checkpoint has been deleted. Raise execution.checkpointing.num-retained to keep it.'}</p>
    ${oneIn > 1 && html`<p class="trouble">Estimated: there is much state, so one key group in ${oneIn} was counted. Bytes, entries and growth of a state are ${oneIn} times those of its counted key groups; a large one among the others is not seen. <code>tidegate inspect --key-groups</code> counts all.</p>`}
    ${unread.map((each) => html`<p key=${each.id} class="trouble">The state of ${name_of(each)} (${bytes(each.bytes)}) is not counted: ${each.unread}.</p>`)}
    ${states.length === 0 && html`<p class="empty">No state has entries in this checkpoint.</p>`}
    ${states.length > 0 && html`
      <div class="scrolled"><table>
        <thead><tr>${['State', 'Operator', 'Bytes', 'Share', 'Entries', 'Growth'].map((head) => html`<th key=${head} scope="col">${head}</th>`)}</tr></thead>
        <tbody>${states.map((each) => html`
          <tr key=${each.id}>
            <td><code>${each.name}</code><small>${each.kind}</small></td><td>${name_of(each.operator)}</td>
            <td>${bytes(each.bytes)}</td><td>${counted.bytes ? percent(each.bytes / counted.bytes) : '–'}</td><td>${whole(each.entries)}</td>
            <td class=${fastest > 0 && each.grown_a_minute === fastest ? 'bad' : ''}>${grown(each)}${fastest > 0 && each.grown_a_minute === fastest ? ', the fastest' : ''}</td>
          </tr>`)}</tbody>
      </table></div>`}
    ${one && html`
      <h3>Key groups</h3>
      <div class="picks"><label>State <select value=${one.id} onChange=${(event) => choose(event.target.value)}>
        ${keyed.map((each) => html`<option key=${each.id} value=${each.id}>${each.name}, ${name_of(each.operator)}</option>`)}</select></label></div>
      <${Skew} state=${one} oneIn=${oneIn} />`}`;
}

function Skew({ state, oneIn }) {
  const { of, held, largest, fastest, 'mean-bytes': mean } = state['key-groups'];
  return html`
    <p class="faint">${whole(held)} of ${whole(Math.ceil(of / oneIn))} ${oneIn > 1 ? 'counted ' : ''}key groups hold something; the mean over all is ${bytes(mean)}, the largest has ${times(largest[0].bytes, mean)} that.</p>
    <${Groups} title="The largest" groups=${largest} mean=${mean} most=${largest[0].bytes} />
    ${fastest.length > 0 && html`<${Groups} title="The fastest growing" groups=${fastest} mean=${mean} most=${largest[0].bytes} />`}`;
}

function Groups({ title, groups, mean, most }) {
  return html`
    <div class="scrolled"><table>
      <caption>${title}</caption>
      <thead><tr>${['Key group', 'Bytes', 'Relative to mean', 'Entries', 'Growth', 'Task that has it now'].map((head) => html`<th key=${head} scope="col">${head}</th>`)}</tr></thead>
      <tbody>${groups.map((each) => html`
        <tr key=${each['key-group']}>
          <th scope="row">${each['key-group']}</th><td>${bytes(each.bytes)}</td>
          <td>${times(each.bytes, mean)}<i class="length" aria-hidden="true" style=${{ width: `${most ? 100 * each.bytes / most : 0}%` }}></i></td>
          <td>${whole(each.entries)}</td><td>${grown(each)}</td><td>${each.task ?? 'none any more'}</td>
        </tr>`)}</tbody>
    </table></div>`;
}

const name_of = (operator) => operator.name ?? operator.uid ?? operator.id;
const times = (size, mean) => (mean ? `${(size / mean).toFixed(1)} times` : '–');
const grown = ({ grown_a_minute: rate }) => (rate === null ? '–' : growth(rate));
