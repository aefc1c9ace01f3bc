// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import (
	"context"
	"errors"

	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/eviction"
)

// machine contains the cgroups and the file system of this machine that the example observes.
type machine struct {
	cgroups *driver.Driver
	dir     string
}

// observePods returns [errors.ErrUnsupported]: the example requires Linux.
func (m machine) observePods(context.Context) (eviction.Observation, error) {
	return eviction.Observation{}, errors.ErrUnsupported
}
