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

// proberCloser returns the prober as an [io.Closer] if the set must close it, otherwise nil.
func proberCloser(prober Prober) io.Closer {
	// The set cannot count the users of a prober that is not comparable.
	if c, ok := prober.(io.Closer); ok && reflect.ValueOf(prober).Comparable() {
		return c
	}
	return nil
}

// proberClosers counts the targets and running probes that use each closable prober, and closes probers without users in
// goroutines. Only Run's goroutine calls its methods.
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

// retainProber keeps a prober open for one more user: a target or a running probe. A nil closer is ignored.
func (s *proberClosers) retainProber(closer io.Closer) {
	if closer != nil {
		s.uses[closer]++
	}
}

// releaseProber removes one user of a prober. After the last one, the next closeUnused closes it. A nil closer is ignored.
func (s *proberClosers) releaseProber(closer io.Closer) {
	if closer == nil {
		return
	}
	if s.uses[closer]--; s.uses[closer] == 0 {
		s.released = append(s.released, closer)
	}
}

// closeUnused closes the probers that have lost their last user. The caller has applied all requests, which may move probers
// between targets.
func (s *proberClosers) closeUnused() {
	for _, c := range s.released {
		if n, ok := s.uses[c]; ok && n == 0 {
			s.startClose(c)
		}
	}
	s.released = nil
}

// closeAll closes all probers. It returns when they are closed, including the probers whose close had started before.
func (s *proberClosers) closeAll() {
	for c := range s.uses {
		s.startClose(c)
	}
	s.wg.Wait()
}

func (s *proberClosers) startClose(closer io.Closer) {
	delete(s.uses, closer)
	s.wg.Go(func() {
		s.slots <- struct{}{}
		defer func() { <-s.slots }()
		if err := closer.Close(); err != nil {
			s.logger.Warn("close prober", slog.Any("error", err))
		}
	})
}
