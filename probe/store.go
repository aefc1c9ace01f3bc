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
	// unclaimedTTL is how long results of a previous agent are kept for containers that no target has named.
	unclaimedTTL = time.Hour
	// maxExtraLines is how many lines beyond two for each record the file may have before it is rewritten.
	maxExtraLines = 1000
	// storeRetry is the pause after a failed write.
	storeRetry = time.Minute
)

// store keeps the values of probes in a file, so that a restarted agent can continue with them. Each change appends a line. The
// file is rewritten at the start and when most of its lines are obsolete.
//
// The file is never synced to the disk: it survives the end of the agent, but a crash of the machine ends the containers too. A
// lost or damaged line costs only its record.
//
// A store without a path keeps nothing. Errors go to onError, and the file is rewritten a minute after an error.
type store struct {
	path      string
	onError   func(error) // nil until startWriting
	readError error       // why the file could not be read completely
	records   map[Key]Value
	unclaimed map[Key]struct{} // records of a previous agent that no target has used
	file      *os.File         // nil after an error
	retryAt   time.Time        // when to write again after an error
	lines     int              // number of lines in file
	pending   []byte           // lines to append
}

// readStore returns a store with the records of the file at path, which may be missing. An empty path keeps no records.
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

// startWriting starts to write changes to the store file. From now on onError receives all errors, including that of readStore.
func (s *store) startWriting(onError func(error)) {
	s.onError = onError
	if s.readError != nil {
		onError(s.readError)
	}
	s.writePending()
}

// readFile reads the records of the store file. It skips damaged lines, and then returns an error with their number.
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

func (s *store) applyRecord(record storeRecord) {
	if record.value.ContainerID == "" {
		delete(s.records, record.key)
	} else {
		s.records[record.key] = record.value
	}
}

// outcomeOf returns the stored outcome of the probe with this key. It returns Unknown if there is none for this container
// instance.
func (s *store) outcomeOf(key Key, containerID string) Outcome {
	if v := s.records[key]; v.ContainerID == containerID {
		return v.Outcome
	}
	return Unknown
}

// setRecord stores the value of the probe with this key. If the value has changed, the next call of writePending writes it
// to the file.
func (s *store) setRecord(key Key, value Value) {
	if s.path == "" {
		return
	}
	delete(s.unclaimed, key)
	if s.records[key] != value {
		s.appendRecord(storeRecord{key: key, value: value})
	}
}

// removeRecord removes the value of the probe with this key. The next call of writePending writes the removal to the file.
func (s *store) removeRecord(key Key) {
	delete(s.unclaimed, key)
	if _, ok := s.records[key]; ok {
		s.appendRecord(storeRecord{key: key})
	}
}

// removeUnclaimed removes the records of a previous agent process that no target has used. It returns their keys.
func (s *store) removeUnclaimed() (forgotten []Key) {
	forgotten = slices.Collect(maps.Keys(s.unclaimed))
	for _, k := range forgotten {
		s.removeRecord(k)
	}
	return forgotten
}

func (s *store) appendRecord(record storeRecord) {
	s.applyRecord(record)
	if s.file != nil {
		s.pending = record.appendLine(s.pending)
		s.lines++
	}
}

// writePending appends the pending lines to the store file, or rewrites it if most lines are obsolete or it is not open.
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

// rewriteFile replaces the store file by a new file with one line per record.
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

// closeFile closes the store file. The next call of writePending creates a new file.
func (s *store) closeFile() {
	if s.file != nil {
		_ = s.file.Close() // every write was checked
		s.file = nil
	}
}
