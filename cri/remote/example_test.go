// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/remote"
)

// Dial does not connect. Check does, and its error advises what to check.
func ExampleDial() {
	client, err := remote.Dial("unix:///run/no-such-runtime.sock", remote.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	err = client.Check(context.Background())
	fmt.Println(err)
	fmt.Println(errors.Is(err, cri.ErrUnavailable), errors.Is(err, fs.ErrNotExist))
	// Output:
	// Version: runtime unavailable: socket /run/no-such-runtime.sock: no such file or directory (check the path, and that the runtime runs)
	// true true
}
