// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package atomicwriter_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/seed81659283/nodeagent/volume/atomicwriter"
)

// A config map with two keys, and then with one.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	write := func(payload map[string]atomicwriter.File) {
		changed, err := atomicwriter.Write(dir, payload, atomicwriter.Options{})
		fmt.Println("changed:", changed, err)
	}
	write(map[string]atomicwriter.File{
		"app.conf":   {Data: []byte("threads 4"), Mode: 0o644},
		"tls/ca.pem": {Data: []byte("..."), Mode: 0o400},
	})
	write(map[string]atomicwriter.File{"app.conf": {Data: []byte("threads 8"), Mode: 0o644}})
	write(map[string]atomicwriter.File{"app.conf": {Data: []byte("threads 8"), Mode: 0o644}})

	link, _ := os.Readlink(filepath.Join(dir, "app.conf"))
	text, _ := os.ReadFile(filepath.Join(dir, "app.conf"))
	_, err = os.Lstat(filepath.Join(dir, "tls"))
	fmt.Printf("%s: %s, %v\n", link, text, os.IsNotExist(err))
	// Output:
	// changed: true <nil>
	// changed: true <nil>
	// changed: false <nil>
	// ..data/app.conf: threads 8, true
}
