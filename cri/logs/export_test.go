// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

// Poll makes a rotator poll its logs: what waits for the kernel's notices keeps the time of a synctest bubble from
// passing.
func (r *Rotator) Poll() { r.pollOnly = true }
