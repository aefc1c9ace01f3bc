// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

// EventCount returns the number of events that a Loop has scheduled.
func EventCount(l *Loop) uint64 { return l.queue.added }
