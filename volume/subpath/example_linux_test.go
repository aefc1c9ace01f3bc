// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package subpath_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/seed81659283/nodeagent/volume/subpath"
)

// A container has created a link that leaves its volume, and uses it as a subPath.
func ExamplePrepare() {
	volume, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(volume)
	if err := os.Symlink("/etc", filepath.Join(volume, "config")); err != nil {
		fmt.Println(err)
		return
	}

	_, err = subpath.Prepare(context.Background(), subpath.Request{
		Volume:  volume,
		SubPath: "config/ssl",
		Target:  filepath.Join(volume, "never-made"),
	})
	fmt.Println(err, errors.Is(err, subpath.ErrOutside))

	_, err = subpath.Prepare(context.Background(), subpath.Request{Volume: volume, SubPath: "../x", Target: filepath.Join(volume, "never-made")})
	if refused, ok := errors.AsType[*subpath.Error](err); ok {
		fmt.Println(refused.SubPath, errors.Is(err, subpath.ErrInvalid))
	}
	fmt.Println(subpath.Clean(context.Background(), filepath.Join(volume, "never-made"))) // when the pod has terminated
	// Output:
	// subPath "config/ssl": leads out of the volume true
	// ../x true
	// <nil>
}
