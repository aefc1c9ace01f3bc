// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import "slices"

// setSource records, in memory and on disk, the name of the source that lists the worker's pod. It is called before the
// worker's goroutine starts.
func (w *worker) setSource(source string) {
	w.source = source
	w.record.SetSource(source)
}

// deletePodOfOtherSource deletes the pod if its record on disk names another source of this agent. That source listed a pod
// with the same UID before the agent restarted, and the running containers belong to that earlier pod. They are removed, and
// then a new worker starts this pod from scratch. If Options.Sources does not contain the recorded source, the pod is kept,
// because the source may have been renamed.
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
