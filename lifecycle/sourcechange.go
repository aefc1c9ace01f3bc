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

// deletePodOfOtherSource deletes the pod if, before the agent restarted, another source listed a pod with this UID. A new worker
// then starts this pod.
func (w *worker) deletePodOfOtherSource() {
	was := w.record.Get().Source
	// was == ""||A recorded source that is not in Options.Sources may have been renamed: its pod is kept.
	if w.source == "" || was == "" || was == w.source || !slices.Contains(w.r.opts.Sources, was) {
		return
	}
	w.record.SetSource(was) // until the pod is removed, across restarts of the agent
	w.reporter.Log("pod of another source has this UID, and is torn down first", "source", w.source, "other", was)
	w.progress.sourceChanged = true
	w.mailbox.Delete()
}
