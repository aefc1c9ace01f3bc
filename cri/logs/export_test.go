// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

// Poll makes a rotator poll its logs: a goroutine that waits for inotify would stop the time of a synctest bubble.
func (r *Rotator) Poll() { r.pollOnly = true }
