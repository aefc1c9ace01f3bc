// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	// forgetAfter is how long after the start what an earlier agent has found is kept for containers that have
	// not been mentioned since.
	unclaimedTTL = time.Hour
	// slack is how many lines a store may have beside two for each record before it is written anew.
	maxExtraLines = 1000
	// storeRetry is how long a store that could not be written is left alone.
	storeRetry = time.Minute
)

// store keeps what was found for the next agent, in a file to which every change appends a line; it is written anew
// at the start and when most of its lines are out of date.
//
// Nothing is ever synced to the disk. What an agent wrote survives its end and its crash; when the machine goes down
// the containers go with it, and of the next ones the file knows nothing. A line that was lost or damaged, wherever
// it is, costs what it said.
//
// A store without a path keeps nothing. All errors go to complain; after one, the file is written anew a minute later.
type store struct {
	path      string
	onError   func(error) // nil until the store is begun
	readError error       // why it could not be read in full
	records   map[Key]Value
	unclaimed map[Key]struct{} // records of an earlier agent that this one has not needed so far
	file      *os.File         // nil after an error
	retryAt   time.Time        // when to write again after an error
	lines     int              // in file
	pending   []byte           // lines to append
}

// readStore reads the file of a store, which may be missing.
func readStore(path string) *store {
	s := &store{path: path, records: make(map[Key]Value), unclaimed: make(map[Key]struct{})}
	if path == "" {
		return s
	}
	if err := s.readFile(); err != nil {
		s.readError = fmt.Errorf("read probe store: %w", err)
	}
	for k := range s.records {
		s.unclaimed[k] = struct{}{}
	}
	return s
}

// begin writes the file anew. From here on errors are told, also that of the reading.
func (s *store) startWriting(complain func(error)) {
	s.onError = complain
	if s.readError != nil {
		complain(s.readError)
	}
	s.writePending()
}

// load reads the file and skips what is damaged.
func (s *store) readFile() error {
	f, err := os.Open(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	damaged := 0
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadSlice('\n')
		r, bad := parseRecord(line)
		switch {
		case errors.Is(err, bufio.ErrBufferFull): // longer than any record
			r, bad = storeRecord{}, errDamaged
		case errors.Is(err, io.EOF) && len(line) == 0:
			if damaged > 0 {
				return fmt.Errorf("%s: damaged lines: %d", s.path, damaged)
			}
			return nil
		case err != nil && !errors.Is(err, io.EOF):
			return err
		}
		if bad != nil {
			damaged++
			continue
		}
		s.applyRecord(r)
	}
}

func (s *store) applyRecord(r storeRecord) {
	if r.value.ContainerID == "" {
		delete(s.records, r.key)
	} else {
		s.records[r.key] = r.value
	}
}

// known returns what was found of a container, or Unknown.
func (s *store) outcomeOf(k Key, containerID string) Outcome {
	if v := s.records[k]; v.ContainerID == containerID {
		return v.Outcome
	}
	return Unknown
}

// put records what was found of a container.
func (s *store) setRecord(k Key, v Value) {
	if s.path == "" {
		return
	}
	delete(s.unclaimed, k)
	if s.records[k] != v {
		s.appendRecord(storeRecord{key: k, value: v})
	}
}

// remove forgets a probe.
func (s *store) removeRecord(k Key) {
	delete(s.unclaimed, k)
	if _, ok := s.records[k]; ok {
		s.appendRecord(storeRecord{key: k})
	}
}

// forgetUnclaimed forgets what this agent has not needed, and returns it.
func (s *store) removeUnclaimed() (forgotten []Key) {
	forgotten = slices.Collect(maps.Keys(s.unclaimed))
	for _, k := range forgotten {
		s.removeRecord(k)
	}
	return forgotten
}

func (s *store) appendRecord(r storeRecord) {
	s.applyRecord(r)
	if s.file != nil {
		s.pending = r.appendLine(s.pending)
		s.lines++
	}
}

// flush brings the file up to date.
func (s *store) writePending() {
	var err error
	switch {
	case s.path == "" || s.file == nil && time.Now().Before(s.retryAt):
		return
	case s.file == nil || s.lines > 2*len(s.records)+maxExtraLines:
		err = s.rewriteFile()
	case len(s.pending) > 0:
		_, err = s.file.Write(s.pending)
	}
	if s.pending = s.pending[:0]; err != nil {
		s.closeFile()
		s.retryAt = time.Now().Add(storeRetry)
		s.onError(fmt.Errorf("write probe store: %w", err))
	}
}

// rewrite replaces the file by one that has a line for each record.
func (s *store) rewriteFile() error {
	s.closeFile()
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return err
	}
	next := s.path + ".new"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	var line []byte
	for k, v := range s.records {
		line = storeRecord{key: k, value: v}.appendLine(line[:0])
		_, _ = w.Write(line) // Flush returns the error
	}
	if err = w.Flush(); err == nil {
		err = os.Rename(next, s.path)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	s.file, s.lines = f, len(s.records)
	return nil
}

// close lets go of the file.
func (s *store) closeFile() {
	if s.file != nil {
		_ = s.file.Close() // every write has been checked
		s.file = nil
	}
}
