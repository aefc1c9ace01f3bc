// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import "slices"

// from says whose pod a worker runs. It is called before the worker runs.
func (w *worker) from(source string) { w.source, w.record.source = source, source }

// takeOver ends the pod of this UID that another source had when the last agent died: what runs is not what this source
// wants, whatever the UIDs say. The worker is followed by one that starts from nothing. A source that the agent does not
// have any more may have been renamed: its pods are taken as they are.
func (w *worker) takeOver() {
	was := w.record.get().Source
	if w.source == "" || was == "" || was == w.source || !slices.Contains(w.r.opts.Sources, was) {
		return
	}
	w.record.keepSource(was) // until nothing is left of it, whenever the agent dies
	w.log("pod of another source has this UID, and is taken down first", "source", w.source, "other", was)
	w.end()
}

// keepSource says whose pod the record is of.
func (r *recorder) keepSource(source string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.source = source
}
