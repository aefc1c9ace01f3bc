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

// machine is where the example runs.
type machine struct {
	cgroups *driver.Driver
	dir     string
}

func (m machine) observe(context.Context) (eviction.Observation, error) {
	return eviction.Observation{}, errors.ErrUnsupported
}
