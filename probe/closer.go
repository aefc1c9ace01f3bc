// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"io"
	"log/slog"
	"reflect"
	"sync"
)

// maxClosing is how many probers are closed concurrently. Closing one whose peer does not respond may block a thread for a while.
const maxClosing = 64

// proberCloser returns p as an [io.Closer] that the set must close, or nil. A prober that is not comparable is never closed,
// because its uses cannot be counted.
func proberCloser(p Prober) io.Closer {
	if c, ok := p.(io.Closer); ok && reflect.ValueOf(p).Comparable() {
		return c
	}
	return nil
}

// proberClosers counts the entries and flights that use each closable prober, and closes probers without users in goroutines.
// Only Run's goroutine calls its methods.
type proberClosers struct {
	logger   *slog.Logger
	uses     map[io.Closer]int
	released []io.Closer    // released probers that may have no user
	slots    chan struct{}  // full while maxClosing probers are being closed
	wg       sync.WaitGroup // probers that are being closed or wait for a slot
}

func newClosers(logger *slog.Logger) *proberClosers {
	return &proberClosers{logger: logger, uses: make(map[io.Closer]int), slots: make(chan struct{}, maxClosing)}
}

// retainProber counts a user of c, which may be nil.
func (s *proberClosers) retainProber(c io.Closer) {
	if c != nil {
		s.uses[c]++
	}
}

// releaseProber removes a user of c, which may be nil. closeUnused closes c if no user remains.
func (s *proberClosers) releaseProber(c io.Closer) {
	if c == nil {
		return
	}
	if s.uses[c]--; s.uses[c] == 0 {
		s.released = append(s.released, c)
	}
}

// closeUnused closes released probers that have no user. It is called after all changes of one loop step, in which a prober may
// move from one target to another.
func (s *proberClosers) closeUnused() {
	for _, c := range s.released {
		if n, ok := s.uses[c]; ok && n == 0 {
			s.startClose(c)
		}
	}
	s.released = nil
}

// closeAll closes all probers and returns when they are closed, including probers released before.
func (s *proberClosers) closeAll() {
	for c := range s.uses {
		s.startClose(c)
	}
	s.wg.Wait()
}

func (s *proberClosers) startClose(c io.Closer) {
	delete(s.uses, c)
	s.wg.Go(func() {
		s.slots <- struct{}{}
		defer func() { <-s.slots }()
		if err := c.Close(); err != nil {
			s.logger.Warn("close prober", slog.Any("error", err))
		}
	})
}
