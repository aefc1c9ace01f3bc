// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/cgroups"
)

func TestPartsAreDistinctBits(t *testing.T) {
	assert.True(t, cgroups.PartAll.Has(cgroups.PartEvents|cgroups.PartCPU|cgroups.PartPressure))
	assert.False(t, cgroups.PartMemory.Has(cgroups.PartMemory|cgroups.PartSwap))
	assert.True(t, cgroups.Parts(0).Has(0))
}

func TestTriggerValidate(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		trigger cgroups.Trigger
		want    string // the text for the kernel, or the error
	}{
		{cgroups.Trigger{File: "memory.events"}, "memory.events"},
		{cgroups.Trigger{File: "memory.pressure", Stall: 150 * time.Millisecond, Window: s}, "memory.pressure some 150000 1000000"},
		{cgroups.Trigger{File: "io.pressure", Full: true, Stall: time.Microsecond, Window: 10 * s}, "io.pressure full 1 10000000"},
		{cgroups.Trigger{File: "cpu.pressure", Stall: s, Window: s}, "cpu.pressure some 1000000 1000000"},
		{cgroups.Trigger{}, `trigger file "" must be`},
		{cgroups.Trigger{File: "../memory.pressure", Stall: s, Window: s}, `trigger file "../memory.pressure" must be`},
		{cgroups.Trigger{File: "memory.events", Window: s}, "trigger memory.events: Full, Stall and Window are for pressure"},
		{cgroups.Trigger{File: "memory.pressure", Stall: s}, "trigger memory.pressure: window 0s must be 500ms to 10s"},
		{cgroups.Trigger{File: "memory.pressure", Stall: s, Window: 11 * s}, "trigger memory.pressure: window 11s must be"},
		{cgroups.Trigger{File: "memory.pressure", Window: s}, "trigger memory.pressure: stall 0s must be"},
		{cgroups.Trigger{File: "memory.pressure", Stall: 2 * s, Window: s}, "trigger memory.pressure: stall 2s must be"},
	} {
		if err := c.trigger.Validate(); err != nil {
			assert.ErrorContains(t, err, c.want)
			continue
		}
		assert.Equal(t, c.want, c.trigger.String())
	}
}
