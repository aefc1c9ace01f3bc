// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package verbosity_test

import (
	"log/slog"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/internal/verbosity"
)

// A larger verbosity never has a higher level, and the levels end.
func TestLevelFallsWithVerbosity(t *testing.T) {
	for v, want := range map[uint64]slog.Level{
		0: slog.LevelInfo, 2: slog.LevelInfo, 3: slog.LevelDebug, 4: slog.LevelDebug, 5: slog.LevelDebug - 1, 10: slog.LevelDebug - 6,
		1000: slog.LevelDebug - 100, math.MaxUint64: slog.LevelDebug - 100,
	} {
		assert.Equal(t, want, verbosity.Level(v), v)
	}
}
