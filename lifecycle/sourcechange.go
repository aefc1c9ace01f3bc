// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import "slices"

// setSource records the name of the source that lists the worker's pod, also in the record on disk. It is called before the
// worker runs.
func (w *worker) setSource(source string) {
	w.source = source
	w.record.SetSource(source)
}

// deletePodOfOtherSource deletes the pod if, by its record, another source of this agent had listed its UID before the restart:
// the running containers are not those of the new source. A new worker then starts the pod from scratch. A source that
// Options.Sources does not name may have been renamed, so its pod is kept.
func (w *worker) deletePodOfOtherSource() {
	was := w.record.Get().Source
	if w.source == "" || was == "" || was == w.source || !slices.Contains(w.r.opts.Sources, was) {
		return
	}
	w.record.SetSource(was) // until the pod is removed, across restarts of the agent
	w.reporter.Log("pod of another source has this UID, and is torn down first", "source", w.source, "other", was)
	w.progress.sourceChanged = true
	w.mailbox.Delete()
}
