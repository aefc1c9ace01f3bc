// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
	"github.com/seed81659283/nodeagent/internal/notexist"
)

// filePrefix is the prefix of record file names, before the SHA-256 of the image name or ID. Source:
// pkg/kubelet/images/pullmanager/fs_pullrecords.go.
const filePrefix = "sha256-"

// recordStore reads and writes the records of pulls. A nil recordStore has no records. Writes of files hold only recordMu, so
// that pods whose images exist do not wait for the disk.
type recordStore struct {
	intentDir string // directory of pullIntents
	pulledDir string // directory of pulledRecords

	recordMu sync.Mutex // serializes changes of pulledRecords

	mu         sync.Mutex     // guards pullCounts and the removal of pullIntents
	pullCounts map[string]int // number of running pulls by image name
}

func newRecordStore(dir string) *recordStore {
	if dir == "" {
		return nil
	}
	return &recordStore{
		intentDir:  filepath.Join(dir, "pulling"),
		pulledDir:  filepath.Join(dir, "pulled"),
		pullCounts: make(map[string]int),
	}
}

// recordPath returns the path of the record in dir about subject, an image name or ID.
func recordPath(dir, subject string) string {
	return filepath.Join(dir, fmt.Sprintf("%s%x", filePrefix, sha256.Sum256([]byte(subject))))
}

// recordPullStart records the start of a pull. After success the caller must call recordPullEnd or recordPullSuccess.
func (s *recordStore) recordPullStart(image string) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	s.pullCounts[image]++
	s.mu.Unlock()
	err := writeRecord(s.intentDir, image, pullIntent{typeMeta: typeMeta{pullIntentKind, recordVersion}, Image: image})
	if err != nil {
		return errors.Join(err, s.recordPullEnd(image))
	}
	return nil
}

// recordPullEnd records the end of a pull. The end of the last running pull of an image removes its intent.
func (s *recordStore) recordPullEnd(image string) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pullCounts[image] > 1 {
		s.pullCounts[image]--
		return nil
	}
	delete(s.pullCounts, image)
	return removeFile(recordPath(s.intentDir, image))
}

// recordPullSuccess records a successful pull. On error the intent remains, so that the image does not count as preloaded. name
// is the image name without tag and digest.
func (s *recordStore) recordPullSuccess(image, name, id string, used recordedCredentials, now time.Time) error {
	if s == nil {
		return nil
	}
	if err := s.addCredentials(name, id, used, now); err != nil {
		return err
	}
	return s.recordPullEnd(image)
}

// addCredentials adds credentials to the record of an image and writes it if it has changed. An unreadable record is replaced.
// name is the image name without tag and digest.
func (s *recordStore) addCredentials(name, id string, added recordedCredentials, now time.Time) error {
	s.recordMu.Lock()
	defer s.recordMu.Unlock()
	record, found, err := s.readRecord(id)
	before := record.CredentialMapping[name]
	after := before.merge(added)
	if err == nil && found && after.isEqual(before) {
		return nil
	}
	if record.CredentialMapping == nil {
		record.CredentialMapping = make(map[string]recordedCredentials)
	}
	if !after.isEqual(recordedCredentials{}) {
		record.CredentialMapping[name] = after
	}
	record.typeMeta = typeMeta{pulledRecordKind, recordVersion}
	record.ImageRef = id
	record.LastUpdatedTime = now.UTC().Truncate(time.Second)
	return writeRecord(s.pulledDir, id, record)
}

// readRecord returns the pulledRecord of the image with this ID.
func (s *recordStore) readRecord(id string) (record pulledRecord, found bool, err error) {
	path := recordPath(s.pulledDir, id)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return record, false, nil
	}
	if err != nil {
		return record, false, err
	}
	if record, err = decodePulledRecord(data); err != nil {
		return record, false, fmt.Errorf("read %s: %w", path, err)
	}
	if record.ImageRef != id {
		return pulledRecord{}, false, nil
	}
	return record, true, nil
}

// hasRecord reports whether there is a record of the image with this ID, readable or not.
func (s *recordStore) hasRecord(id string) bool {
	if s == nil {
		return false
	}
	info, err := os.Lstat(recordPath(s.pulledDir, id))
	return err == nil && info.Mode().IsRegular()
}

// lookupCredentials returns the recorded credentials of an image under one name. pulled reports whether any agent has pulled
// the image. The intent is read first: a pull that ends in between has written its record by then.
func (s *recordStore) lookupCredentials(image, name, id string) (credentials recordedCredentials, pulled bool, err error) {
	begun, intentErr := s.isPullStarted(image)
	r, found, err := s.readRecord(id)
	if err != nil || found {
		return r.CredentialMapping[name], found, err
	}
	return credentials, begun, intentErr
}

// isPullStarted reports whether there is an intent for an image: a pull by this agent or an earlier one that has not ended.
func (s *recordStore) isPullStarted(image string) (bool, error) {
	path := recordPath(s.intentDir, image)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	i, err := decodeIntent(data)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	return i.Image == image, nil
}

// visitRecords calls visit with the content of each record in dir and returns its joined errors. A missing directory is empty.
func visitRecords(dir string, visit func(path string, data []byte) error) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if e.IsDir() || !strings.HasPrefix(e.Name(), filePrefix) || strings.HasSuffix(e.Name(), ".tmp") {
			continue
		}
		path := filepath.Join(dir, e.Name())
		data, err := os.ReadFile(path)
		if err == nil {
			err = visit(path, data)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("read %s: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

// writeRecord writes the record about subject, an image name or ID, to dir.
func writeRecord(dir, subject string, object any) error {
	data, err := encodeRecord(object)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return atomicfile.WriteFile(recordPath(dir, subject), data, 0o600)
}

// removeFile removes a file; a missing file is no error.
func removeFile(path string) error {
	if err := notexist.Ignore(os.Remove(path)); err != nil {
		return err
	}
	return nil
}
