// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"strconv"
	"strings"

	"github.com/seed81659283/nodeagent/volume/plan"
)

// Error is the error of a step of a volume.
type Error struct {
	Step   plan.Step
	Volume string // by its name in the pod
	Err    error
}

// Error returns `step volume "name": cause`.
func (e *Error) Error() string {
	return e.Step.String() + " volume " + strconv.Quote(e.Volume) + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// maxListed is how many volumes an error names.
const maxListed = 5

// joined is several errors in one line.
type joined []error

// join returns errors as one, whose text names the first of them.
func join(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return joined(errs)
}

// Error returns the texts of the first errors.
func (j joined) Error() string {
	var texts []string
	for i, err := range j {
		if i == maxListed {
			texts = append(texts, "and "+strconv.Itoa(len(j)-i)+" more")
			break
		}
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns all errors.
func (j joined) Unwrap() []error { return j }
