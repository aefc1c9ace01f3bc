// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/gc"
)

// imageGC notes what it is asked for, and frees 5 bytes.
type imageGC struct{ wants []uint64 }

func (g *imageGC) Reclaim(_ context.Context, want uint64) (uint64, error) {
	g.wants = append(g.wants, want)
	return 5, nil
}

// Images go for so many bytes, or, where inodes are short, all that can: to want more than there is would be an error.
func TestReclaimOfImages(t *testing.T) {
	g := &imageGC{}
	p := &pressure{agent: &agent{unused: g}}
	for _, signal := range []eviction.Signal{eviction.ImageFSAvailable, eviction.ImageFSInodesFree} {
		freed, err := p.Reclaim(t.Context(), eviction.Reclaim{Signal: signal, Kind: eviction.Images, Want: 1000})
		require.NoError(t, err)
		require.EqualValues(t, 5, freed)
	}
	require.Equal(t, []uint64{1000, gc.All}, g.wants)
}
