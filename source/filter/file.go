package filter

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/FastFilter/xorfilter"
)

// A saved filter is this line, the number of names, the filter as xorfilter saves it, and
// the SHA-256 of all that.
const magic = "ampcors filter 1\n"

// save writes a filter to a file, which is replaced as a whole. A nil filter has no names.
func save(path string, filter *xorfilter.BinaryFuse8, names int) (err error) {
	var b bytes.Buffer
	b.WriteString(magic)
	_ = binary.Write(&b, binary.BigEndian, uint64(names)) // a Buffer returns no error
	if filter != nil {
		if err := filter.Save(&b); err != nil {
			return fmt.Errorf("filter: %w", err)
		}
	}
	sum := sha256.Sum256(b.Bytes())
	b.Write(sum[:])
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("filter: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
			err = fmt.Errorf("filter: %w", err)
		}
	}()
	if _, err := f.Write(b.Bytes()); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// read reads a file that save wrote. at is the time of the save.
func read(path string) (filter *xorfilter.BinaryFuse8, names int, at time.Time, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, at, fmt.Errorf("filter: %w", err)
	}
	rest, ok := bytes.CutPrefix(data, []byte(magic))
	if !ok || len(rest) < 8+sha256.Size {
		return nil, 0, at, fmt.Errorf("filter: %s is not a saved filter", path)
	}
	end := len(data) - sha256.Size
	if sum := sha256.Sum256(data[:end]); !bytes.Equal(sum[:], data[end:]) {
		return nil, 0, at, fmt.Errorf("filter: %s is damaged: its checksum is wrong", path)
	}
	names, rest = int(binary.BigEndian.Uint64(rest)), rest[8:len(rest)-sha256.Size]
	if names > 0 {
		if filter, err = xorfilter.LoadBinaryFuse8(bytes.NewReader(rest)); err != nil {
			return nil, 0, at, fmt.Errorf("filter: %s: %w", path, err)
		}
	}
	if info, err := os.Stat(path); err == nil {
		at = info.ModTime()
	}
	return filter, names, at, nil
}
