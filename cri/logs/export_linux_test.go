// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

// Watched returns how many logs are quiet and waited for. There must be a watch.
func (r *Rotator) Watched() int {
	r.watch.mu.Lock()
	defer r.watch.mu.Unlock()
	return len(r.watch.armed)
}
