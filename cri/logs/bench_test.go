// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri/logs"
)

func BenchmarkParseCRI(b *testing.B) {
	line := []byte("2016-10-20T18:39:20.576064430Z stdout F " + strings.Repeat("x", 100) + "\n")
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := logs.FormatCRI.Parse(line); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	for _, size := range []int{100, 16 << 10} {
		line := "2016-10-20T18:39:20.576064430Z stdout F " + strings.Repeat("x", size) + "\n"
		path := writeLog(b, filepath.Join(b.TempDir(), "0.log"), strings.Repeat(line, (10<<20)/len(line)))
		info, err := os.Stat(path)
		require.NoError(b, err)
		for name, o := range map[string]logs.ReadOptions{
			"all": {}, "timestamps": {Timestamps: true}, "tail of 100": {TailLines: new(int64(100))},
		} {
			b.Run(fmt.Sprintf("lines of %d/%s", size, name), func(b *testing.B) {
				b.SetBytes(info.Size())
				b.ReportAllocs()
				for b.Loop() {
					if err := logs.Read(b.Context(), path, io.Discard, io.Discard, o); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
