// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import "time"

// Results returns all values that Result returns.
func (s *Set) Results() map[Key]Value { return s.allResults() }

// Trigger returns the state with a probe due now.
func (s State) Trigger(now time.Time) State { return s.TriggerProbe(now) }
