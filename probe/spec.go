// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"time"
)

// MinPeriod is the shortest period of a probe, and the longest that one waits to begin together with others.
const MinPeriod = 10 * time.Millisecond

// Spec says when to probe and how to count. Period is required; zero of any other field is the default of the Kubernetes
// API.
type Spec struct {
	InitialDelay     time.Duration // from the start of the container to its first probe; zero: none
	Period           time.Duration // from probe to probe, at least [MinPeriod]
	Timeout          time.Duration // of each attempt; zero means 1 s
	SuccessThreshold int           // successes in a row that make a success; zero means 1
	FailureThreshold int           // failures in a row that make a failure; zero means 3
}

// Validate returns an error that names the first field that is invalid.
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

// withDefaults fills in what is zero. A state can be given a period that Validate refuses, and divides by it.
func (s Spec) withDefaults() Spec {
	s.Period = max(s.Period, MinPeriod)
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
