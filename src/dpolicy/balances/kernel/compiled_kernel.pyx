# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
# distutils: extra_compile_args = -ffp-contract=off -fwrapv -g0
"""The compiled kernel: gates, tightest rules, exceeded rules and charge of one release.

It returns exactly what `numpy_kernel.py` returns. Shares are the same 64-bit floats, because the
operations and their order are the same: a fused multiply-add would round otherwise. Sums of 64-bit
integers wrap as in NumPy. The loops use no Python object and stay inside arrays whose shapes were
compared before.
"""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.math cimport INFINITY
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t
from libc.string cimport memcpy

from dpolicy.balances.kernel.numpy_kernel import MAX_TIGHTEST as _MAX_TIGHTEST
from dpolicy.errors import InvariantBroken
from dpolicy.privacy.loss import INFINITE as _INFINITE

#: Version of the behaviour, see `numpy_kernel.py`.
KERNEL_VERSION = 3

cdef enum:
    MAX_TIGHTEST = 3

cdef int64_t INFINITE = _INFINITE

# Remaining share of a rule that is exceeded.
cdef double EXCEEDED = -1.0

include "reserve_epsilon.pxi"

if _MAX_TIGHTEST != MAX_TIGHTEST:
    raise ImportError("the compiled kernel returns another number of tightest rules")


cdef struct Tightest:
    # The tightest rules so far, the tightest first; of a rule in a grid, the fullest cell.
    Py_ssize_t count
    double shares[MAX_TIGHTEST]
    Py_ssize_t positions[MAX_TIGHTEST]
    Py_ssize_t cells[MAX_TIGHTEST]


cdef class _Rows:
    """A cost, limits and displayed columns: a row per rule, a column per certificate, δ last.

    See `numpy_kernel._Rows`.
    """

    cdef Py_ssize_t rules
    cdef Py_ssize_t width
    cdef bint has_infinite_cost
    cdef Py_ssize_t* numbers
    cdef Py_ssize_t* positions
    cdef int64_t* cost
    cdef int64_t* maximum
    cdef int64_t* added
    cdef char* require_all
    cdef char* is_displayed
    # The reserve of each column, −1 for none; NULL if no column has one.
    cdef int64_t* reserves

    def __cinit__(
        self,
        const Py_ssize_t[::1] numbers not None,
        const int64_t[:, ::1] cost not None,
        const int64_t[:, ::1] maximum not None,
        require_all not None,
        const int64_t[:, ::1] added not None,
        is_displayed not None,
        const int64_t[::1] reserves not None,
        const Py_ssize_t[::1] positions = None,
    ):
        cdef const char[::1] all_flags = _bytes_for(require_all)
        cdef const char[:, ::1] displayed_flags = _bytes_for(is_displayed)
        cdef Py_ssize_t rules = cost.shape[0], width = cost.shape[1], column
        if width < 2 or numbers.shape[0] != rules or all_flags.shape[0] != rules:
            raise InvariantBroken(f"{numbers.shape[0]} rules have a cost of shape {rules, width}")
        for shape in (
            (maximum.shape[0], maximum.shape[1]),
            (added.shape[0], added.shape[1]),
            (displayed_flags.shape[0], displayed_flags.shape[1]),
        ):
            if shape != (rules, width):
                raise InvariantBroken(f"limits or columns have another shape than {rules, width}")
        if reserves.shape[0] != width:
            raise InvariantBroken(f"{reserves.shape[0]} reserves for {width} columns")
        if positions is not None and positions.shape[0] != rules:
            raise InvariantBroken(f"{rules} rules have {positions.shape[0]} positions")
        if rules == 0:
            self.width = width
            return
        if positions is not None:
            self.positions = <Py_ssize_t*> _copy(&positions[0], rules * sizeof(Py_ssize_t))
        self.numbers = <Py_ssize_t*> _copy(&numbers[0], rules * sizeof(Py_ssize_t))
        self.cost = <int64_t*> _copy(&cost[0, 0], rules * width * sizeof(int64_t))
        self.maximum = <int64_t*> _copy(&maximum[0, 0], rules * width * sizeof(int64_t))
        self.added = <int64_t*> _copy(&added[0, 0], rules * width * sizeof(int64_t))
        self.require_all = <char*> _copy(&all_flags[0], rules)
        self.is_displayed = <char*> _copy(&displayed_flags[0, 0], rules * width)
        for column in range(width):
            if reserves[column] >= 0:
                self.reserves = <int64_t*> _copy(&reserves[0], width * sizeof(int64_t))
                break
        self.rules, self.width = rules, width
        self._check_content()

    def __dealloc__(self):
        PyMem_Free(self.numbers)
        PyMem_Free(self.positions)
        PyMem_Free(self.cost)
        PyMem_Free(self.maximum)
        PyMem_Free(self.added)
        PyMem_Free(self.require_all)
        PyMem_Free(self.is_displayed)
        PyMem_Free(self.reserves)

    cdef int _check_content(self) except -1:
        """Compare numbers, costs and flags with their ranges; saturate the cost."""
        cdef Py_ssize_t position, entry
        cdef bint is_displayed
        for position in range(self.rules):
            if self.numbers[position] < 0 or (
                position and self.numbers[position] <= self.numbers[position - 1]
            ):
                raise InvariantBroken("rule numbers are negative or do not increase")
            is_displayed = False
            for entry in range(position * self.width, (position + 1) * self.width):
                is_displayed = is_displayed or self.is_displayed[entry]
                if self.cost[entry] < 0:
                    raise InvariantBroken("a cost is negative")
                if self.cost[entry] >= INFINITE:
                    self.cost[entry] = INFINITE
                    self.has_infinite_cost = True
            if not is_displayed:
                raise InvariantBroken("a rule displays no column")
        return 0

    @cython.final
    cdef tuple _describe(
        self,
        const int64_t* finite,
        const int32_t* infinite,
        Py_ssize_t position,
        double share,
    ):
        """Return the share, position, displayed quanta, δ and variances of a rule, as `TightRule`.

        `finite` and `infinite` are the row of the rule; `infinite` is NULL for a cell of a grid.
        """
        cdef Py_ssize_t column, start = position * self.width
        cdef int64_t before = 0, after = 0, shown_before = INT64_MAX, shown_after = INT64_MAX
        cdef int64_t variance_before = INFINITE, variance_after = INFINITE
        for column in range(self.width):
            before = _amount(finite, infinite, column)
            after = _add(before, self.cost[start + column])
            if self.is_displayed[start + column]:
                shown_before = min(shown_before, _display(before, self.added[start + column]))
                shown_after = min(shown_after, _display(after, self.added[start + column]))
            if self.reserves != NULL and self.reserves[column] >= 0:
                variance_before = min(variance_before, _display(before, self.reserves[column]))
                variance_after = min(variance_after, _display(after, self.reserves[column]))
        return (
            share,
            position if self.positions == NULL else self.positions[position],
            max(shown_before, <int64_t> 0),
            max(shown_after, <int64_t> 0),
            before,
            after,
            variance_before,
            variance_after,
        )

    @cython.final
    cdef bint _check(
        self,
        const int64_t* finite,
        const int32_t* infinite,
        Py_ssize_t position,
        double* share,
    ) noexcept nogil:
        """Return whether a rule is within its bound; set its remaining share if it is."""
        cdef Py_ssize_t start = position * self.width
        return _check_rule(
            finite,
            infinite,
            self.cost + start,
            self.maximum + start,
            self.width,
            self.require_all[position],
            share,
        )


@cython.final
cdef class RuleRows(_Rows):
    """The rules without segments that a release matches; see `numpy_kernel.RuleRows`."""

    def decide(
        self, const int64_t[:, ::1] finite not None, const int32_t[:, ::1] infinite not None
    ):
        """Return the tightest rules after the release; None if it exceeds a rule."""
        cdef Tightest tightest
        cdef Py_ssize_t rank, row
        self._check_shapes(
            finite.shape[0], finite.shape[1], infinite.shape[0], infinite.shape[1]
        )
        if self.rules == 0:
            return []
        if not self._rank(&finite[0, 0], &infinite[0, 0], &tightest):
            return None
        described = []
        for rank in range(tightest.count):
            row = self.numbers[tightest.positions[rank]]
            described.append(
                self._describe(
                    &finite[row, 0],
                    &infinite[row, 0],
                    tightest.positions[rank],
                    tightest.shares[rank],
                )
            )
        return described

    def find_exceeded(
        self, const int64_t[:, ::1] finite not None, const int32_t[:, ::1] infinite not None
    ):
        """Return the rules that the release exceeds, in their order."""
        cdef Py_ssize_t position, row
        cdef double share
        self._check_shapes(
            finite.shape[0], finite.shape[1], infinite.shape[0], infinite.shape[1]
        )
        exceeded = []
        for position in range(self.rules):
            row = self.numbers[position]
            if not self._check(&finite[row, 0], &infinite[row, 0], position, &share):
                exceeded.append(
                    self._describe(&finite[row, 0], &infinite[row, 0], position, EXCEEDED)
                )
        return exceeded

    def charge(self, int64_t[:, ::1] finite not None, int32_t[:, ::1] infinite not None):
        """Add the cost of the release to the arrays of `Balances`."""
        self._check_shapes(
            finite.shape[0], finite.shape[1], infinite.shape[0], infinite.shape[1]
        )
        if self.rules == 0:
            return
        if self.has_infinite_cost:
            if not self._can_count(&infinite[0, 0]):
                raise InvariantBroken("a count of infinite terms is at its maximum")
            self._count_infinite(&infinite[0, 0])
        self._add_finite(&finite[0, 0])

    cdef int _check_shapes(
        self, Py_ssize_t rules, Py_ssize_t width, Py_ssize_t count_rules, Py_ssize_t count_width
    ) except -1:
        if rules != count_rules or width != count_width or width != self.width:
            raise InvariantBroken("the balances have another shape than the rows")
        if self.rules and self.numbers[self.rules - 1] >= rules:
            raise InvariantBroken("the balances have no row for a rule")
        return 0

    cdef bint _rank(
        self, const int64_t* finite, const int32_t* infinite, Tightest* tightest
    ) noexcept nogil:
        """Rank the rules by remaining share; return False if a rule is exceeded."""
        cdef Py_ssize_t position, row
        cdef double share
        tightest.count = 0
        for position in range(self.rules):
            row = self.numbers[position] * self.width
            if not self._check(finite + row, infinite + row, position, &share):
                return False
            _insert(tightest, share, position, 0)
        return True

    cdef bint _can_count(self, const int32_t* infinite) noexcept nogil:
        """Return whether every count of infinite terms can grow."""
        cdef Py_ssize_t position, column, row
        for position in range(self.rules):
            row = self.numbers[position] * self.width
            for column in range(self.width):
                if (
                    self.cost[position * self.width + column] == INFINITE
                    and infinite[row + column] == INT32_MAX
                ):
                    return False
        return True

    cdef void _count_infinite(self, int32_t* infinite) noexcept nogil:
        cdef Py_ssize_t position, column, row
        for position in range(self.rules):
            row = self.numbers[position] * self.width
            for column in range(self.width):
                if self.cost[position * self.width + column] == INFINITE:
                    infinite[row + column] += 1

    cdef void _add_finite(self, int64_t* finite) noexcept nogil:
        # Local variables: the compiler reads a field again after each write to an array.
        cdef Py_ssize_t position, column, width = self.width
        cdef int64_t infinite = INFINITE, cost
        cdef const int64_t* costs = self.cost
        cdef int64_t* row
        for position in range(self.rules):
            row = finite + self.numbers[position] * width
            for column in range(width):
                cost = 0 if costs[column] == infinite else costs[column]
                row[column] = infinite if row[column] > infinite - cost else row[column] + cost
            costs += width


@cython.final
cdef class GridRows(_Rows):
    """The rules of one grid that a release matches; see `numpy_kernel.GridRows`."""

    def decide(self, const int64_t[:, ::1] amounts not None, const Py_ssize_t[::1] cells not None):
        """Return the tightest rules after the release, each at its fullest cell."""
        cdef Tightest tightest
        cdef Py_ssize_t rank, position, cell
        self._check_cells(amounts.shape[0], amounts.shape[1], cells)
        if self.rules == 0:
            return []
        if not self._rank(&amounts[0, 0], amounts.shape[1], cells, &tightest):
            return None
        described = []
        for rank in range(tightest.count):
            position, cell = tightest.positions[rank], tightest.cells[rank]
            described.append(
                (
                    *self._describe(
                        &amounts[cells[cell], self.numbers[position] * self.width],
                        NULL,
                        position,
                        tightest.shares[rank],
                    ),
                    cell,
                )
            )
        return described

    def find_exceeded(
        self, const int64_t[:, ::1] amounts not None, const Py_ssize_t[::1] cells not None
    ):
        """Return the rules that the release exceeds, each at its cell with the largest loss.

        With reserves, return each rule at each cell in which it is exceeded.
        """
        cdef Py_ssize_t position, cell
        cdef const int64_t* row
        self._check_cells(amounts.shape[0], amounts.shape[1], cells)
        exceeded = []
        for position in range(self.rules):
            if self.reserves != NULL:
                for cell in range(cells.shape[0]):
                    row = &amounts[cells[cell], self.numbers[position] * self.width]
                    if not self._is_within(row, position):
                        exceeded.append(
                            (*self._describe(row, NULL, position, EXCEEDED), cell)
                        )
                continue
            cell = self._find_largest(&amounts[0, 0], amounts.shape[1], cells, position)
            if cell >= 0:
                row = &amounts[cells[cell], self.numbers[position] * self.width]
                exceeded.append((*self._describe(row, NULL, position, EXCEEDED), cell))
        return exceeded

    def charge(self, int64_t[:, ::1] amounts not None, const Py_ssize_t[::1] cells not None):
        """Add the cost of the release to the amounts of the cells."""
        cdef Py_ssize_t cell, position, column
        cdef int64_t* row
        cdef const int64_t* cost
        self._check_cells(amounts.shape[0], amounts.shape[1], cells)
        for cell in range(cells.shape[0]):
            for position in range(self.rules):
                row = &amounts[cells[cell], self.numbers[position] * self.width]
                cost = self.cost + position * self.width
                for column in range(self.width):
                    row[column] = _add(row[column], cost[column])

    cdef int _check_cells(
        self, Py_ssize_t rows, Py_ssize_t columns, const Py_ssize_t[::1] cells
    ) except -1:
        cdef Py_ssize_t cell
        if columns % self.width:
            raise InvariantBroken("the grid has another number of columns than the rows")
        if self.rules and self.numbers[self.rules - 1] >= columns // self.width:
            raise InvariantBroken("the grid has no columns for a rule")
        for cell in range(cells.shape[0]):
            if not 0 <= cells[cell] < rows:
                raise InvariantBroken("the grid has no such cell, or no cell is charged")
        if cells.shape[0] == 0:
            raise InvariantBroken("the grid has no such cell, or no cell is charged")
        return 0

    cdef bint _rank(
        self,
        const int64_t* amounts,
        Py_ssize_t columns,
        const Py_ssize_t[::1] cells,
        Tightest* tightest,
    ) noexcept nogil:
        """Rank the rules by remaining share; return False if a rule is exceeded in a cell."""
        cdef Py_ssize_t position, cell, fullest, offset
        cdef double share
        tightest.count = 0
        for position in range(self.rules):
            offset = self.numbers[position] * self.width
            fullest = 0
            if cells.shape[0] > 1:
                fullest = self._find_fullest(amounts + offset, columns, cells, position)
                for cell in range(cells.shape[0]):
                    if not self._is_within(amounts + cells[cell] * columns + offset, position):
                        return False
            if not self._check(
                amounts + cells[fullest] * columns + offset, NULL, position, &share
            ):
                return False
            _insert(tightest, share, position, fullest)
        return True

    cdef bint _is_within(self, const int64_t* row, Py_ssize_t position) noexcept nogil:
        """Return whether a rule is within its bound in a cell: `_check` without the share."""
        cdef const int64_t* cost = self.cost + position * self.width
        cdef const int64_t* maximum = self.maximum + position * self.width
        cdef Py_ssize_t column, last = self.width - 1
        cdef bint require_all = self.require_all[position]
        if _add(row[last], cost[last]) > maximum[last]:
            return False
        for column in range(last):
            if (_add(row[column], cost[column]) <= maximum[column]) != require_all:
                return not require_all
        return require_all

    cdef Py_ssize_t _find_fullest(
        self,
        const int64_t* amounts,
        Py_ssize_t columns,
        const Py_ssize_t[::1] cells,
        Py_ssize_t position,
    ) noexcept nogil:
        """Return the first of the fullest cells of a rule.

        It has the largest amount in the certificate that is least used in the first cell.
        """
        cdef const int64_t* cost = self.cost + position * self.width
        cdef const int64_t* maximum = self.maximum + position * self.width
        cdef const int64_t* first = amounts + cells[0] * columns
        cdef Py_ssize_t column, chosen = -1, cell, fullest = 0
        cdef double share, least = 0
        for column in range(self.width - 1):
            if 0 <= maximum[column] < INFINITE:
                share = <double> (first[column] - (maximum[column] - cost[column]))
                share /= <double> max(maximum[column], <int64_t> 1)
                if chosen < 0 or share < least:
                    chosen, least = column, share
        if chosen < 0:
            return 0
        for cell in range(1, cells.shape[0]):
            if amounts[cells[cell] * columns + chosen] > amounts[cells[fullest] * columns + chosen]:
                fullest = cell
        return fullest

    cdef Py_ssize_t _find_largest(
        self,
        const int64_t* amounts,
        Py_ssize_t columns,
        const Py_ssize_t[::1] cells,
        Py_ssize_t position,
    ) noexcept nogil:
        """Return the first of the cells with the largest loss that exceeds a rule; -1 if none."""
        cdef Py_ssize_t cell, column, largest = -1
        cdef Py_ssize_t start = position * self.width
        cdef const int64_t* row
        cdef int64_t size, most = -1
        for cell in range(cells.shape[0]):
            row = amounts + cells[cell] * columns + self.numbers[position] * self.width
            if self._is_within(row, position):
                continue
            size = INT64_MAX
            for column in range(self.width):
                if self.is_displayed[start + column]:
                    size = min(
                        size,
                        _display(
                            _add(row[column], self.cost[start + column]),
                            self.added[start + column],
                        ),
                    )
            size = max(size, <int64_t> 0)
            if size > most:
                largest, most = cell, size
        return largest


cdef bint _check_rule(
    const int64_t* finite,
    const int32_t* infinite,
    const int64_t* cost,
    const int64_t* maximum,
    Py_ssize_t width,
    bint require_all,
    double* remaining,
) noexcept nogil:
    """Return whether a rule is within its bound; set its remaining share if it is."""
    cdef Py_ssize_t column, last = width - 1
    cdef int64_t after
    cdef double share, certified = INFINITY if require_all else -INFINITY
    cdef bint is_certified = require_all
    for column in range(last):
        # Many columns have the limit NEVER, which no amount satisfies.
        if maximum[column] >= 0:
            after = _add(_amount(finite, infinite, column), cost[column])
            if after <= maximum[column]:
                share = _remaining_share(after, maximum[column])
                certified = min(certified, share) if require_all else max(certified, share)
                is_certified = True
                continue
        if require_all:
            return False
    after = _add(_amount(finite, infinite, last), cost[last])
    remaining[0] = min(certified, _remaining_share(after, maximum[last]))
    return is_certified and after <= maximum[last]


cdef inline int64_t _amount(
    const int64_t* finite, const int32_t* infinite, Py_ssize_t column
) noexcept nogil:
    return INFINITE if infinite != NULL and infinite[column] > 0 else finite[column]


cdef inline double _remaining_share(int64_t after, int64_t limit) noexcept nogil:
    if limit == INFINITE:
        return 2.0
    if after > limit:
        return -1.0
    return 1.0 - <double> after / <double> max(limit, <int64_t> 1)


cdef inline int64_t _add(int64_t amount, int64_t cost) noexcept nogil:
    """Return the sum, saturated; `cost` is from 0 to `INFINITE`, so it does not overflow."""
    return INFINITE if amount > INFINITE - cost else amount + cost


cdef inline int64_t _display(int64_t amount, int64_t added) noexcept nogil:
    return INFINITE if amount >= INFINITE else amount + added


cdef inline void _insert(
    Tightest* tightest, double share, Py_ssize_t position, Py_ssize_t cell
) noexcept nogil:
    """Insert a rule after those with the same or a smaller share."""
    cdef Py_ssize_t rank
    if tightest.count < MAX_TIGHTEST:
        rank = tightest.count
        tightest.count += 1
    elif share < tightest.shares[MAX_TIGHTEST - 1]:
        rank = MAX_TIGHTEST - 1
    else:
        return
    while rank > 0 and tightest.shares[rank - 1] > share:
        tightest.shares[rank] = tightest.shares[rank - 1]
        tightest.positions[rank] = tightest.positions[rank - 1]
        tightest.cells[rank] = tightest.cells[rank - 1]
        rank -= 1
    tightest.shares[rank] = share
    tightest.positions[rank] = position
    tightest.cells[rank] = cell


cdef void* _copy(const void* source, size_t size) except NULL:
    cdef void* target = PyMem_Malloc(size)
    if target == NULL:
        raise MemoryError()
    memcpy(target, source, size)
    return target


cdef _bytes_for(flags):
    """Return an array of booleans as bytes."""
    if flags.dtype.char != "?":
        raise ValueError(f"an array of {flags.dtype} instead of bool")
    return flags.view("i1")
