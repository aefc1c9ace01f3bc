// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstore_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podstore"
)

// One agent stores the pods of the API server. The next one loads them before it has reached the API server.
func ExampleStore() {
	dir, err := os.MkdirTemp("", "podstore")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "pods")

	store := podstore.New(path, podstore.Options{})
	store.Update(lifecycle.PodSet{Source: "api", Pods: newPods("web", "db")})
	if err := store.Flush(); err != nil { // Run calls Flush at its end
		fmt.Println(err)
	}

	sets, err := podstore.New(path, podstore.Options{}).Load()
	if err != nil {
		fmt.Println(err)
	}
	for _, set := range sets {
		for _, pod := range set.Pods {
			fmt.Println(set.Source, pod.Name)
		}
	}
	// Output:
	// api web
	// api db
}

// An agent continues without its stored pods: the sources list them again.
func ExampleStore_Load() {
	dir, err := os.MkdirTemp("", "pods")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "pods")
	if err := os.WriteFile(path, []byte("half a fi"), 0o600); err != nil {
		fmt.Println(err)
	}
	sets, err := podstore.New(path, podstore.Options{}).Load()
	switch {
	case errors.Is(err, podstore.ErrCorrupt):
		fmt.Println("wait for the sources:", len(sets), "sets")
	case err != nil:
		fmt.Println("the disk is broken:", err)
	}
	// Output: wait for the sources: 0 sets
}
