// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import "slices"

// from says whose pod a worker runs. It is called before the worker runs.
func (w *worker) setSource(source string) {
	w.source = source
	w.record.KeepSource(source)
}

// takeOver ends the pod of this UID that another source had when the last agent died: what runs is not what this source
// wants, whatever the UIDs say. The worker is followed by one that starts from nothing. A source that the agent does not
// have any more may have been renamed: its pods are taken as they are.
func (w *worker) deletePodOfOtherSource() {
	was := w.record.Get().Source
	if w.source == "" || was == "" || was == w.source || !slices.Contains(w.r.opts.Sources, was) {
		return
	}
	w.record.KeepSource(was) // until nothing is left of it, whenever the agent dies
	w.reporter.Log("pod of another source has this UID, and is taken down first", "source", w.source, "other", was)
	w.progress.sourceChanged = true
	w.mailbox.Delete()
}
