// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package fsgroup_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/seed81659283/nodeagent/volume/fsgroup"
)

// The fsGroup of the pod equals the group of this process.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "data")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		fmt.Println(err)
		return
	}

	err = fsgroup.Apply(context.Background(), dir, int64(os.Getgid()), fsgroup.Options{Policy: fsgroup.OnRootMismatch})
	if some, ok := errors.AsType[*fsgroup.FilesError](err); ok {
		fmt.Println(some.Files, "files are left as they were") // the pod can start nevertheless
	}
	info, _ := os.Stat(file)
	fmt.Println(info.Mode(), err)
	// Output: -rw-rw---- <nil>
}
