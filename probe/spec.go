// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"time"
)

// MinPeriod is the shortest period of a probe. It is also the longest time that a due probe is delayed to start together with
// other probes.
const MinPeriod = 10 * time.Millisecond

// Spec has the schedule and the thresholds of a probe, like the fields of corev1.Probe. Period is required. Zero of any other
// field means the default of the Kubernetes API.
type Spec struct {
	InitialDelay     time.Duration // from the start of the container to its first probe; zero: none
	Period           time.Duration // between the starts of two probes, at least [MinPeriod]
	Timeout          time.Duration // of each attempt; zero means 1 s
	SuccessThreshold int           // consecutive successes for the outcome Success; zero means 1
	FailureThreshold int           // consecutive failures for the outcome Failure; zero means 3
}

// Validate returns an error that names the first invalid field and its value, or nil.
func (s Spec) Validate() error {
	switch {
	case s.InitialDelay < 0:
		return fmt.Errorf("field InitialDelay: %v is negative", s.InitialDelay)
	case s.Period < MinPeriod:
		return fmt.Errorf("field Period: %v is less than %v", s.Period, MinPeriod)
	case s.Timeout < 0:
		return fmt.Errorf("field Timeout: %v is negative", s.Timeout)
	case s.SuccessThreshold < 0:
		return fmt.Errorf("field SuccessThreshold: %d is negative", s.SuccessThreshold)
	case s.FailureThreshold < 0:
		return fmt.Errorf("field FailureThreshold: %d is negative", s.FailureThreshold)
	}
	return nil
}

// withDefaults returns s with the defaults of the Kubernetes API in its zero fields.
func (s Spec) withDefaults() Spec {
	s.Period = max(s.Period, MinPeriod) // a State divides by it
	if s.Timeout == 0 {
		s.Timeout = time.Second
	}
	if s.SuccessThreshold == 0 {
		s.SuccessThreshold = 1
	}
	if s.FailureThreshold == 0 {
		s.FailureThreshold = 3
	}
	return s
}
