// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// logFile matches the names of the current log file and of rotated ones, which may be compressed or about to be.
var logFile = regexp.MustCompile(`^0\.log(\.\d{8}-\d{6}(_\d{3})?(\.gz|\.tmp)?)?$`)

// logWatch records the log files of a pod's container.
type logWatch struct {
	t          *testing.T
	pattern    string // of the files
	seen       map[string]bool
	most       int64 // largest size of all files at one time, in bytes
	compressed bool
}

func (f files) watchLog(pod string) *logWatch {
	return &logWatch{t: f.t, pattern: filepath.Join(f.logs, "*_"+pod+"_*", "main", "*"), seen: map[string]bool{}}
}

// update records the current files.
func (w *logWatch) update() {
	w.t.Helper()
	paths, err := filepath.Glob(w.pattern)
	require.NoError(w.t, err)
	var sum int64
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			continue // renamed or removed
		}
		require.Regexp(w.t, logFile, info.Name())
		w.seen[strings.TrimSuffix(strings.TrimSuffix(info.Name(), ".gz"), ".tmp")] = true
		w.compressed = w.compressed || strings.HasSuffix(path, ".gz")
		sum += info.Size()
	}
	w.most = max(w.most, sum)
}
