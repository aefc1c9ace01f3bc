// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
)

// config is what the flags say.
type config struct {
	endpoint, manifests, node, state, logs, cgroupRoot string
	stopPods                                           bool
	log                                                *slog.Logger
}

// complete checks the config. Paths become absolute: a runtime has another working directory.
func (c *config) complete(args []string) (err error) {
	if len(args) > 0 {
		return fmt.Errorf("%q is no flag, and nothing else is taken", args[0])
	}
	if c.manifests == "" {
		return errors.New("-manifests is required")
	}
	for _, path := range []*string{&c.state, &c.logs} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	return nil
}

func hostname() string {
	name, _ := os.Hostname()
	return strings.ToLower(name)
}
