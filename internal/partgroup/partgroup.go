// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package partgroup runs the parts of a program, such as informers and servers, until their context ends. It reports the error of
// each part, and does not order their starts.
package partgroup

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
)

// Group is a list of parts. The zero value is empty. Its methods are not safe for concurrent use.
type Group struct{ parts []part }

// part is a named function that blocks until its context ends.
type part struct {
	name string
	run  func(context.Context) error
}

// Add adds a part to the group. [Group.Start] starts the part by calling run. Errors of the part begin with name.
func (g *Group) Add(name string, run func(context.Context) error) {
	g.parts = append(g.parts, part{name, run})
}

// Len returns the number of parts of g.
func (g *Group) Len() int { return len(g.parts) }

// Start runs each part of the group with ctx, in a goroutine of wg. The goroutine logs an error of the part and passes it
// to fail, which must not block.
func (g *Group) Start(ctx context.Context, wg *sync.WaitGroup, fail func(error), log *slog.Logger) {
	for _, p := range g.parts {
		wg.Go(func() {
			if err := p.run(ctx); err != nil {
				log.Error("a part of the agent ended", "part", p.name, "error", err)
				fail(fmt.Errorf("%s: %w", p.name, err))
			}
		})
	}
}
