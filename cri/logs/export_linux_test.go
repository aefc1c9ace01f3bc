// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

// Watched returns the number of quiet logs that wait for an inotify event. Run must have opened a watch.
func (r *Rotator) Watched() int {
	r.watch.mu.Lock()
	defer r.watch.mu.Unlock()
	return len(r.watch.armed)
}
