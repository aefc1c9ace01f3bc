// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import "github.com/seed81659283/nodeagent/internal/sleep"

// isIdle reports whether the simulated machine cannot change until a process starts: all demands are met, no process has a
// usage curve, and keepAwake was not called.
func (k *kernel) isIdle() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.isIdleLocked()
}

// recordChange records a change of the machine other than a start or end of a process.
func (k *kernel) recordChange() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.changes++
}

// countChanges returns the number of changes until now. While it stays the same, an idle machine stays idle.
func (k *kernel) countChanges() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changes
}

// isIdleLocked does the work of isIdle. The caller holds k.mu.
func (k *kernel) isIdleLocked() bool {
	if k.observed {
		return false
	}
	for _, p := range k.processes {
		if !p.usage.isZero() {
			return false
		}
	}
	return k.machine.Settled()
}

// keepAwake makes run simulate each interval from now on, even if no demand changes.
func (k *kernel) keepAwake() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.observed = true
	k.changes++
	sleep.Wake(k.woken)
}

// isZero reports whether u has no curve.
func (u *Usage) isZero() bool {
	return u.CPU == nil && u.Memory == nil && u.Cache == nil && u.Tasks == nil && u.Layer == nil && u.Logs == nil && len(u.Volumes) == 0
}
