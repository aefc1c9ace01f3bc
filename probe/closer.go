// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"io"
	"log/slog"
	"reflect"
	"sync"
)

// maxClosing is how many probers are closed at a time. One whose peer has vanished may hold a thread for a while.
const maxClosing = 64

// closerOf returns a prober that is to be closed when it is no longer needed, or nil. What cannot be compared is never
// closed, for it cannot be found out whether it is still needed.
func proberCloser(p Prober) io.Closer {
	if c, ok := p.(io.Closer); ok && reflect.ValueOf(p).Comparable() {
		return c
	}
	return nil
}

// closers are the probers that are to be closed, with the number of entries and flights that use each: several may
// share one. Closing may take a while, so it has goroutines of its own. The methods are for Run's.
type proberClosers struct {
	logger   *slog.Logger
	uses     map[io.Closer]int
	released []io.Closer    // may have no user any more
	slots    chan struct{}  // full while maxClosing are being closed
	wg       sync.WaitGroup // of those that are being closed or wait for a slot
}

func newClosers(logger *slog.Logger) *proberClosers {
	return &proberClosers{logger: logger, uses: make(map[io.Closer]int), slots: make(chan struct{}, maxClosing)}
}

// retain keeps a prober from being closed; nil is none.
func (s *proberClosers) retainProber(c io.Closer) {
	if c != nil {
		s.uses[c]++
	}
}

// release takes a retain back.
func (s *proberClosers) releaseProber(c io.Closer) {
	if c == nil {
		return
	}
	if s.uses[c]--; s.uses[c] == 0 {
		s.released = append(s.released, c)
	}
}

// closeIdle closes what was released and has no user. It comes after all that is to be done at a time, in which a
// prober may go from one target to another.
func (s *proberClosers) closeUnused() {
	for _, c := range s.released {
		if n, ok := s.uses[c]; ok && n == 0 {
			s.startClose(c)
		}
	}
	s.released = nil
}

// closeAll closes all that is in use and returns when it is closed, as is everything that was released before.
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
